#include "host_proxy/base/variables.hpp"

#include "host_proxy/base/log.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <new>
#include <numeric>
#include <vector>

#include <unistd.h>

namespace gpusock::proxy {
namespace {

constexpr std::string_view kPrefix = "GPUSOCK_";
constexpr std::string_view kOfTests = "GPUSOCK_TEST_";

constexpr std::string_view kVariables[] = {
    // Options::from_env(), Endpoint::parse() and the log (README.md).
    "GPUSOCK_FABRIC_PROVIDER",
    "GPUSOCK_GPU",
    "GPUSOCK_GPUDIRECT",
    "GPUSOCK_HOST_RINGS",
    "GPUSOCK_LINK",
    "GPUSOCK_LOG",
    "GPUSOCK_OBSERVE",
    "GPUSOCK_PROCESSORS",
    "GPUSOCK_RING",
    "GPUSOCK_SECRET",
    "GPUSOCK_SPIN",
    "GPUSOCK_WORDS",
    // The CPU device (docs/testing.md).
    "GPUSOCK_CPU_GROUP_CALLS",
    "GPUSOCK_CPU_SHAPE",
    // param_sync (docs/many_hosts.md).
    "GPUSOCK_PEERS",
    "GPUSOCK_RANK",
    "GPUSOCK_RENDEZVOUS",
    "GPUSOCK_SIZE",
    // ./run gpu-check and ./run rdma-test.
    "GPUSOCK_CHECKED_SCALE",
    "GPUSOCK_VM_ACCEL",
    "GPUSOCK_VM_CACHE",
};

/// How many letters must be inserted, removed or replaced to turn one name into the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> remark_on_variable(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  if (!name.starts_with(kPrefix) || name.starts_with(kOfTests)) return std::nullopt;
  if (std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) return std::nullopt;
  constexpr std::size_t kLongest = 64;
  const std::string shown(name.substr(0, kLongest));
  const auto* const nearest = std::min_element(
      std::begin(kVariables), std::end(kVariables),
      [&shown](std::string_view a, std::string_view b) { return distance(shown, a) < distance(shown, b); });
  return shown + " is set, but nothing reads it: did you mean " + std::string(*nearest) + "?";
}

void warn_of_unknown_variables() noexcept {
  static std::atomic<bool> done{false};
  if (environ == nullptr || done.exchange(true)) return;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(kPrefix)) continue;
    try {
      if (const auto remark = remark_on_variable(*variable)) log_warn(*remark);
    } catch (const std::bad_alloc&) {  // the warning is lost
    }
  }
}

}  // namespace gpusock::proxy
