#include "tests/kernels/scan.cuh"

#include <numeric>
#include <random>

namespace gpusock::test {
namespace {

std::vector<unsigned> scanned(const std::vector<unsigned>& in, unsigned threads) {
  const auto count = static_cast<unsigned>(in.size());
  const unsigned blocks = (count + threads - 1) / threads;
  DeviceArray<unsigned> values(in), totals(blocks), unused(1);
  run_kernel({blocks, threads}, scan_blocks, values.data(), count, totals.data());
  run_kernel({1, kLargestBlock}, scan_blocks, totals.data(), blocks, unused.data());
  run_kernel({blocks, threads}, add_totals, values.data(), count, totals.data());
  return values.read();
}

TEST(Scan, EqualsTheHostsPrefixSums) {
  REQUIRE_DEVICE();
  std::mt19937 random(11);
  for (const std::size_t count : {1u, 31u, 32u, 33u, 1024u, 1025u, 29 * kLargestBlock}) {
    std::vector<unsigned> values(count), expected(count);
    for (auto& value : values) value = static_cast<unsigned>(random());
    std::partial_sum(values.begin(), values.end(), expected.begin());
    for (const unsigned threads : {32u, 96u, kLargestBlock})
      EXPECT_EQ(scanned(values, threads), expected) << count << " by " << threads;
  }
}

}  // namespace
}  // namespace gpusock::test
