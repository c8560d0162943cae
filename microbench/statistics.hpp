#pragma once
/// @file What many figures come to.

#include "contestant.hpp"

namespace bench {

/// The median; of an even count the mean of the middle two. 0 for none.
double median(std::vector<double> values);

/// One round in figures. Latency has the times, bandwidth the rates, connections both.
struct Figures {
  std::uint64_t messages = 0;
  double p50_ns = 0;
  double p99_ns = 0;  ///< nearest rank, as p50
  double min_ns = 0;
  double mean_ns = 0;
  double gigabytes_per_s = 0;  ///< 10^9 bytes; both directions together
  double out_gigabytes_per_s = 0;
  double in_gigabytes_per_s = 0;
  double messages_per_s = 0;  ///< both directions together; of connections: connections
};

Figures figures_of(const Job& job, const Round& round);

}  // namespace bench
