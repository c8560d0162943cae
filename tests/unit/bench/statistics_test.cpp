// Promises of the histogram: each sample is in one interval, and no interval is wide beside its times.
#include "microbench/statistics.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace bench {
namespace {

TEST(Histogram, IntervalsGrowWithTheTimeAndMeet) {
  EXPECT_EQ(interval_of(0), 0u);
  EXPECT_EQ(interval_of(63), 63u);
  EXPECT_EQ(interval_of(64), 64u);
  EXPECT_EQ(interval_of(65), 64u);
  EXPECT_EQ(interval_of(66), 66u);
  EXPECT_EQ(interval_of(~std::uint64_t{0}), std::uint64_t{63} << 58);
  std::uint64_t last = 0;
  for (std::uint64_t time_ns = 1; time_ns < 100'000; ++time_ns) {
    const std::uint64_t from_ns = interval_of(time_ns);
    EXPECT_LE(from_ns, time_ns);
    EXPECT_LE((time_ns - from_ns) * 32, from_ns == time_ns ? 0 : from_ns);
    EXPECT_GE(from_ns, last);
    EXPECT_EQ(interval_of(from_ns), from_ns);
    last = from_ns;
  }
}

TEST(Histogram, CountsEachSampleOnceOverAllRounds) {
  Histogram histogram;
  histogram.add({5, 64, 65});
  histogram.add({5, 5, 1'000'000});
  using Counts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  const Counts counts(histogram.counts().begin(), histogram.counts().end());
  EXPECT_EQ(counts, (Counts{{5, 3}, {64, 2}, {interval_of(1'000'000), 1}}));
}

}  // namespace
}  // namespace bench
