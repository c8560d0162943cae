#pragma once
/// @file Rounds of measurements, until they are steady: other work on the machine disturbs some of them.

#include "tune/fit.hpp"

#include <functional>
#include <string>
#include <vector>

namespace param_sync::tune {

/// What one round has measured: the median time of each schedule and size, which were timed several times.
struct Round {
  std::vector<Measurement> fitted;  ///< of schemes that a fit is made of
  std::vector<Measurement> others;
  double scatter = 0;  ///< scatter_of() equal runs: the median over all of them
};

inline constexpr double kDriftMax = 0.15;   ///< of medians, from one round to the next
inline constexpr double kScatterMax = 0.3;  ///< of equal runs

/// The last two rounds.
struct Settled {
  Round round, later;
  double drift = 0;  ///< drift_of() the two
  int rounds = 0;    ///< that were timed

  bool is_steady() const;
};

/// Times rounds until the last two are steady. At least two; before each later one `goes_on()` is asked.
Settled settle(const std::function<Round()>& time_round, const std::function<bool()>& goes_on);

/// What is not steady, for people: a part of a sentence. Empty where all is.
std::string unsteadiness_of(const Settled& settled);

std::vector<Measurement> all_of(const Round& round);

}  // namespace param_sync::tune
