// Host rings for a test program and the processes that it starts. GPUSOCK_TEST_HOST_RINGS=shared: all of them use the
// same. apart: contexts of one process, too, meet as those of different processes do.
#include "host_proxy/links/p2p/segment_exchange.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace gpusock::test {
namespace {

/// Before main(), as there is one thread then. The processes that this one starts keep its name.
const bool host_rings_chosen = [] {
  const char* const mode = std::getenv("GPUSOCK_TEST_HOST_RINGS");
  if (mode == nullptr) return false;
  const std::string name = "test-" + std::to_string(getpid()) + ",connections=64";
  const char* const set = std::getenv("GPUSOCK_HOST_RINGS");  // off: what tests have if they do not ask for any
  if (set == nullptr || std::string_view(set) == "off") setenv("GPUSOCK_HOST_RINGS", name.c_str(), 1);
  if (std::string_view(mode) == "apart") proxy::hide_local_offers();
  return true;
}();

}  // namespace
}  // namespace gpusock::test
