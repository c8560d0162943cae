#pragma once
/// @file Repeats rounds of measurements until they are steady: other work on the machine disturbs some rounds.

#include "tune/fit.hpp"

#include <functional>
#include <string>
#include <vector>

namespace param_sync::tune {

/// The measurements of one round: the median time of each schedule and size, each of which was timed several times.
struct Round {
  std::vector<Measurement> fitted;  ///< measurements of schemes that the fit uses
  std::vector<Measurement> others;
  double scatter = 0;  ///< scatter_of() equal runs: the median over all schedules and sizes
};

inline constexpr double kDriftMax = 0.15;   ///< largest drift_of() two steady rounds
inline constexpr double kScatterMax = 0.3;  ///< largest Round::scatter of a steady round

/// The last two rounds.
struct Settled {
  Round round, later;
  double drift = 0;  ///< drift_of() the two rounds
  int rounds = 0;    ///< number of rounds that were timed

  bool is_steady() const;
};

/// Times at least two rounds, then more until the last two are steady or `goes_on()` returns false.
Settled settle(const std::function<Round()>& time_round, const std::function<bool()>& goes_on);

/// Says what is not steady, as part of a sentence for people. Empty if all is steady.
std::string unsteadiness_of(const Settled& settled);

std::vector<Measurement> all_of(const Round& round);

}  // namespace param_sync::tune
