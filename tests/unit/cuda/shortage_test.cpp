// Each call of CUDA fails once, in the life of a context: an Error or nothing, and nothing is left behind.
#include "tests/unit/cuda/fixture.hpp"

#include <algorithm>

namespace gpusock::cuda_test {
namespace {

void live(RingPlacement ring) {
  Options options = small_options();
  options.ring = ring;
  Context context(options);
  Stream stream(context);
  DeviceBuffer<std::uint64_t> buffer(context, 100);
  Mapped<std::uint64_t> word(context, 1);
  buffer.copy_in(std::vector<std::uint64_t>(100, 3));
  launch(context, {.stream = &stream}, set<4>, word.data(), std::uint64_t{1});
  launch(context, {}, wait_for<4>, word.data());
  context.synchronize();
  std::vector<std::uint64_t> back(100);
  buffer.copy_out(back);
  EXPECT_EQ(back[99], 3u);
  EXPECT_EQ(word[0], 1u);
}

class Shortage : public testing::TestWithParam<RingPlacement> {};

TEST_P(Shortage, EachCallThatFailsIsAnErrorOrNothing) {
  live(GetParam());  // streams, and what the first launch makes ready, are kept for the process
  const std::vector<std::string> before = cuda_double::left();
  std::uint64_t n = 1;
  int errors = 0;
  for (;; ++n) {
    cuda_double::fail_call(n);
    try {
      live(GetParam());
    } catch (const Error& error) {
      ++errors;
      EXPECT_FALSE(cuda_double::failed_call().empty()) << error.what();
    }
    const std::string failed = cuda_double::failed_call();
    cuda_double::fail_call(0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << n << ": " << failed;
    const std::vector<std::string> left = cuda_double::left();
    EXPECT_EQ(left, before) << n << ": " << failed;
    if (failed.empty() || left != before) break;
  }
  EXPECT_GT(n, 30u);
  EXPECT_GT(errors, 10);
}

INSTANTIATE_TEST_SUITE_P(Rings, Shortage,
                         testing::Values(RingPlacement::automatic, RingPlacement::host, RingPlacement::device),
                         [](const auto& ring) { return std::string(to_string(ring.param)); });

}  // namespace
}  // namespace gpusock::cuda_test
