#pragma once
/// @file Medians and percentiles of figures.

#include "contestant.hpp"

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

}  // namespace bench
