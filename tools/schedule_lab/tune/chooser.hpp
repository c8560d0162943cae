#pragma once
/// @file Which scheme to take for so many bytes between so many nodes.

#include "param_sync/cost/network_model.hpp"
#include "param_sync/cost/cost_model.hpp"

#include <string>
#include <vector>

namespace param_sync::tune {

struct Candidate {
  std::string scheme;
  int chunks = 1;
  bool operator==(const Candidate&) const = default;
};

/// The schedule, which check() passes.
schedule::Schedule schedule_of(const Candidate& candidate, int nodes);

/// Its time in a simulation.
double simulated_s(const Candidate& candidate, int nodes, double bytes, const cost::NetworkModel& model);

/// Knows the costs of every all-reduce that it can choose, pipelines with several numbers of chunks.
class Chooser {
 public:
  explicit Chooser(int nodes);

  struct Priced {
    Candidate candidate;
    cost::Costs costs;
  };
  const std::vector<Priced>& candidates() const { return candidates_; }

  /// The fastest in virtual time of those that the cost model finds cheapest: at most eight, and none that it finds 1.5
  /// times as long as the cheapest. (It is exact for schemes in which all send alike; of pipelines it can be wrong by a
  /// third.)
  Candidate choose(double bytes, const cost::NetworkModel& model) const;

  /// The fastest in virtual time of all candidates: slow.
  Candidate best(double bytes, const cost::NetworkModel& model) const;

 private:
  int nodes_;
  std::vector<Priced> candidates_;
};

}  // namespace param_sync::tune
