#pragma once
/// @file Chooses a scheme for a number of bytes and a number of nodes.

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

/// Returns the candidate's schedule, which check() accepts.
schedule::Schedule schedule_of(const Candidate& candidate, int nodes);

/// Returns the candidate's time in a simulation, in seconds.
double simulated_s(const Candidate& candidate, int nodes, double bytes, const cost::NetworkModel& model);

/// Knows the costs of every all-reduce that it can choose. Pipelines are candidates with several numbers of chunks.
class Chooser {
 public:
  explicit Chooser(int nodes);

  struct Priced {
    Candidate candidate;
    cost::Costs costs;
  };
  const std::vector<Priced>& candidates() const { return candidates_; }

  /// Returns the fastest in virtual time of the candidates that the cost model finds cheapest: at most eight, and none
  /// that it finds more than 1.5 times as long as the cheapest. (The model is exact for schemes in which all ranks send
  /// alike; for pipelines it can be wrong by a third.)
  Candidate choose(double bytes, const cost::NetworkModel& model) const;

  /// Returns the fastest in virtual time of all candidates. Slow.
  Candidate best(double bytes, const cost::NetworkModel& model) const;

 private:
  int nodes_;
  std::vector<Priced> candidates_;
};

}  // namespace param_sync::tune
