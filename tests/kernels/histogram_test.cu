#include "tests/kernels/histogram.cuh"

#include <random>

namespace gpusock::test {
namespace {

TEST(Histogram, CountsEveryValueOnce) {
  REQUIRE_DEVICE();
  std::mt19937 random(3);
  for (const unsigned bins : {1u, 7u, 256u, 2000u}) {
    std::vector<unsigned> values(50'000), expected(bins);
    for (auto& value : values) ++expected[(value = static_cast<unsigned>(random())) % bins];
    for (const unsigned threads : {32u, 100u, kLargestBlock / 2}) {
      DeviceArray<unsigned> in(values), counts(bins);
      run_kernel({6, threads, bins * sizeof(unsigned)}, count_values, in.data(), static_cast<unsigned>(values.size()),
                 counts.data(), bins);
      EXPECT_EQ(counts.read(), expected) << bins << " bins, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace gpusock::test
