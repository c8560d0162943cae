#pragma once
/// @file Medians and percentiles of figures.

#include "contestant.hpp"

#include <map>

namespace bench {

/// The median. For an even count, the mean of the middle two; 0 if there are no values.
double median(std::vector<double> values);

/// The figures of one round. Latency has the times, bandwidth has the rates, connections has both.
struct Figures {
  std::uint64_t messages = 0;
  double p50_ns = 0;
  double p99_ns = 0;  ///< nearest rank, as p50
  double min_ns = 0;
  double mean_ns = 0;
  double gigabytes_per_s = 0;  ///< 10^9 bytes; both directions together
  double out_gigabytes_per_s = 0;
  double in_gigabytes_per_s = 0;
  double messages_per_s = 0;  ///< both directions together; for connections: connections per second
};

Figures figures_of(const Job& job, const Round& round);

/// How many samples are in each interval of times. Intervals grow with the time: the first 32 have 1 ns each, and each
/// further octave has 32, so an interval is at most 1/32 of its times wide.
class Histogram {
 public:
  void add(const std::vector<std::uint64_t>& samples_ns);
  /// The number of samples by the first time of their interval, ns. Only intervals with samples are here.
  const std::map<std::uint64_t, std::uint64_t>& counts() const { return counts_; }

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;
};

/// The first time of the interval that holds `time_ns`.
std::uint64_t interval_of(std::uint64_t time_ns);

}  // namespace bench
