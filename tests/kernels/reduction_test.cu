#include "tests/kernels/reduction.cuh"

#include <numeric>
#include <random>

namespace gpusock::test {
namespace {

unsigned reduced(const std::vector<unsigned>& values, unsigned blocks, unsigned threads) {
  DeviceArray<unsigned> in(values);
  DeviceArray<unsigned> out(1);
  run_kernel({blocks, threads}, reduce_sum, in.data(), static_cast<unsigned>(values.size()), out.data());
  return out.read()[0];
}

TEST(Reduction, EqualsTheHostsSumForAnyShape) {
  REQUIRE_DEVICE();
  std::mt19937 random(7);
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 1000u, 100'000u}) {
    std::vector<unsigned> values(count);
    for (auto& value : values) value = static_cast<unsigned>(random());  // the sum wraps
    const unsigned expected = std::accumulate(values.begin(), values.end(), 0u);
    for (const unsigned threads : {32u, 96u, kLargestBlock}) {
      for (const unsigned blocks : {1u, 5u})
        EXPECT_EQ(reduced(values, blocks, threads), expected) << count << " of " << threads;
    }
  }
}

}  // namespace
}  // namespace gpusock::test
