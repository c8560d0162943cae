#include "plan/delays.hpp"

#include "gpusock/error.hpp"
#include "layout/random.hpp"
#include "program/arguments.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <string>

namespace param_sync {

double Delays::time_of(std::uint64_t seed, int rank, int nodes, std::uint64_t step) const {
  double time = 1;
  if (exponential) {
    const auto number = static_cast<std::uint64_t>(rank) << 40 | step;
    // A generator of its own for each time: so the times of a run do not depend on the order of its events.
    Random random(seed * 0x9e3779b97f4a7c15 + number * 0xd1342543de82ef95 + 1);
    const double uniform = (1 - static_cast<double>(random.symmetric())) / 2;  // more than 0, at most 1
    time = 0.5 - 0.5 * std::log(uniform);
  }
  return rank + 1 == nodes ? time * slowest : time;
}

Delays delays_of(std::string_view text) {
  constexpr std::string_view kSlow = "slow:";
  constexpr double kSlowMax = 1000;
  Delays delays;
  for (const std::string& part : gpusock::program::split(std::string(text))) {
    if (part == "exponential") {
      delays.exponential = true;
      continue;
    }
    const char* const end = part.data() + part.size();
    const bool named = part.starts_with(kSlow);
    const auto read = std::from_chars(part.data() + (named ? kSlow.size() : 0), end, delays.slowest);
    if (named && read.ec == std::errc() && read.ptr == end && delays.slowest >= 1 && delays.slowest <= kSlowMax) {
      continue;
    }
    throw gpusock::Error::with_cause(EINVAL, "'" + part +
                                                 "' is neither exponential (half of each step is a random time) nor "
                                                 "slow:F (the last rank takes F times as long, from 1 to 1000)");
  }
  return delays;
}

}  // namespace param_sync
