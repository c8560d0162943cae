#include "statistics.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace bench {
namespace {

/// The smallest sample that at least `percent` % of all samples do not exceed.
double percentile(const std::vector<std::uint64_t>& sorted, std::uint64_t percent) {
  const std::uint64_t rank = (sorted.size() * percent + 99) / 100;
  return static_cast<double>(sorted[std::max<std::uint64_t>(rank, 1) - 1]);
}

double per_second(const Flow& flow) {
  return 1e9 * static_cast<double>(flow.messages) / static_cast<double>(std::max<std::uint64_t>(flow.elapsed_ns, 1));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Figures figures_of(const Job& job, const Round& round) {
  Figures figures;
  figures.messages = round.out.messages + round.in.messages;
  figures.messages_per_s = per_second(round.out) + per_second(round.in);
  if (job.question == Question::bandwidth) {
    const double gigabytes = static_cast<double>(job.bytes) * 1e-9;
    figures.out_gigabytes_per_s = gigabytes * per_second(round.out);
    figures.in_gigabytes_per_s = gigabytes * per_second(round.in);
    figures.gigabytes_per_s = figures.out_gigabytes_per_s + figures.in_gigabytes_per_s;
  } else if (!round.samples_ns.empty()) {
    auto sorted = round.samples_ns;
    std::sort(sorted.begin(), sorted.end());
    figures.p50_ns = percentile(sorted, 50);
    figures.p99_ns = percentile(sorted, 99);
    figures.min_ns = static_cast<double>(sorted.front());
    figures.mean_ns = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  }
  return figures;
}

std::uint64_t interval_of(std::uint64_t time_ns) {
  constexpr int kBits = 6;  // of a time, those that an interval keeps: the highest one, and five for 32 intervals
  const int dropped = std::max(static_cast<int>(std::bit_width(time_ns)) - kBits, 0);
  return time_ns >> dropped << dropped;
}

void Histogram::add(const std::vector<std::uint64_t>& samples_ns) {
  for (const std::uint64_t sample_ns : samples_ns) ++counts_[interval_of(sample_ns)];
}

}  // namespace bench
