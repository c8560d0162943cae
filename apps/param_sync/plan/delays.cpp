#include "plan/delays.hpp"

#include "gpusock/error.hpp"
#include "layout/random.hpp"
#include "program/arguments.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

namespace param_sync {

namespace {

/// Reads a number from `least` to `most` that is a whole text, or returns nothing.
std::optional<double> number_of(std::string_view text, double least, double most) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || !(number >= least && number <= most)) return std::nullopt;
  return number;
}

}  // namespace

double Delays::time_of(std::uint64_t seed, int rank, int nodes, std::uint64_t step) const {
  double time = 1;
  if (exponential) {
    const auto number = static_cast<std::uint64_t>(rank) << 40 | step;
    // A generator of its own for each time: so the times of a run do not depend on the order of its events.
    Random random(seed * 0x9e3779b97f4a7c15 + number * 0xd1342543de82ef95 + 1);
    const double uniform = (1 - static_cast<double>(random.symmetric())) / 2;  // more than 0, at most 1
    time = 0.5 - 0.5 * std::log(uniform);
  }
  if (stalled_share != 0) {
    const auto number = static_cast<std::uint64_t>(rank) << 40 | step;
    Random random((seed + 1) * 0xc2b2ae3d27d4eb4f + number * 0x9fb21c651e98df25 + 1);  // as above, and another one
    if ((1 - static_cast<double>(random.symmetric())) / 2 <= stalled_share) time *= stalled;
  }
  return rank + 1 == nodes ? time * slowest : time;
}

Delays delays_of(std::string_view text) {
  constexpr std::string_view kSlow = "slow:", kStalls = "stalls:";
  constexpr double kSlowMax = 1000;
  Delays delays;
  for (const std::string& part : gpusock::program::split(std::string(text))) {
    if (part == "exponential") {
      delays.exponential = true;
      continue;
    }
    const std::string_view of_part = part;
    if (of_part.starts_with(kSlow)) {
      if (const auto slowest = number_of(of_part.substr(kSlow.size()), 1, kSlowMax)) {
        delays.slowest = *slowest;
        continue;
      }
    }
    if (const std::size_t second = of_part.rfind(':'); of_part.starts_with(kStalls) && second >= kStalls.size()) {
      const auto share = number_of(of_part.substr(kStalls.size(), second - kStalls.size()), 0, 1);
      const auto times = number_of(of_part.substr(second + 1), 1, kSlowMax);
      if (share && times) {
        delays.stalled_share = *share;
        delays.stalled = *times;
        continue;
      }
    }
    throw gpusock::Error::with_cause(EINVAL, "'" + part +
                                                 "' is neither exponential (half of each step is a random time) nor "
                                                 "slow:F (the last rank takes F times as long, from 1 to 1000) nor "
                                                 "stalls:SHARE:F (of all steps this share, from 0 to 1, takes F times "
                                                 "as long)");
  }
  return delays;
}

}  // namespace param_sync
