// The limit on the size of files (ulimit -f), which is also one on shared memory.
#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace gpusock {
namespace {

[[noreturn]] void end_test(const char* wrong) {
  if (wrong != nullptr) std::fprintf(stderr, "not so: %s\n", wrong);
  std::_Exit(wrong == nullptr ? 0 : 1);
}

/// A limit below a connection's rings: nothing ends the program, and what needs the memory is refused.
void connections_fail_beyond_the_limit() {
  signal(SIGXFSZ, SIG_DFL);
  char name[] = "/tmp/gpusock_limit_XXXXXX";
  const std::string folder = mkdtemp(name);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_FSIZE, &none);
  Options options;
  options.observe = folder;
  Context context(options);
  const bool left_page = !std::filesystem::is_empty(folder);
  std::filesystem::remove_all(folder);
  if (left_page) end_test("no page is left where it cannot be written");
  const Net net = context.net();
  for (const char* link : {"tcp", "p2p"}) {
    const Socket listener = net.listen(this_thread(), Endpoint::parse(std::string("127.0.0.1:0,link=") + link), 1);
    Endpoint at;
    net.getsockname(listener, at);
    if (net.connect(this_thread(), at, patience()) >= 0) end_test("a connection without memory is refused");
  }
  sigset_t pending;
  sigpending(&pending);
  if (sigismember(&pending, SIGXFSZ) != 0) end_test("no signal is left");
  end_test(nullptr);
}

TEST(FileSize, ConnectionsBeyondTheLimitFailAndTheProgramLives) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(connections_fail_beyond_the_limit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpusock
