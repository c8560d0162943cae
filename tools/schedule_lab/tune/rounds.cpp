#include "tune/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace param_sync::tune {
namespace {

double scatter_of(const Settled& settled) { return std::max(settled.round.scatter, settled.later.scatter); }

}  // namespace

bool Settled::is_steady() const { return drift <= kDriftMax && scatter_of(*this) <= kScatterMax; }

Settled settle(const std::function<Round()>& time_round, const std::function<bool()>& goes_on) {
  Settled settled;
  settled.later = time_round();
  settled.rounds = 1;
  do {
    settled.round = std::exchange(settled.later, time_round());
    settled.drift = drift_of(all_of(settled.round), all_of(settled.later));
    ++settled.rounds;
  } while (!settled.is_steady() && goes_on());
  return settled;
}

std::string unsteadiness_of(const Settled& settled) {
  std::string text;
  if (settled.drift > kDriftMax) {
    text = fmt::format("medians of the last two of {} rounds differ by {:.0f} %, where {:.0f} % are steady",
                       settled.rounds, 100 * settled.drift, 100 * kDriftMax);
  }
  if (scatter_of(settled) > kScatterMax) {
    text += fmt::format("{}times of equal runs differ by {:.0f} %, where {:.0f} % are steady",
                        text.empty() ? "" : ", and ", 100 * scatter_of(settled), 100 * kScatterMax);
  }
  return text;
}

std::vector<Measurement> all_of(const Round& round) {
  std::vector<Measurement> all = round.fitted;
  all.insert(all.end(), round.others.begin(), round.others.end());
  return all;
}

}  // namespace param_sync::tune
