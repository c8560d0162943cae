#pragma once
/// @file Which node stopped a run: what each node knows when it has waited for too long, and what all know together.
///
/// In a step all nodes wait for each other, so if one node stops, all others wait, most of them for nodes that only
/// wait, too. Which of its waits a node gives up first is chance. So it reports all that it lacks, and the earliest
/// part that any node lacks decides: the node that owes that part waits for nothing that is still to come.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// How far a node has come with each other one. A *part* is one layer's in one step; parts are counted in the order in
/// which they are pushed. All by rank; a node's entries for itself mean nothing.
struct StepProgress {
  int rank = -1;                        ///< the node that reports
  std::vector<std::uint64_t> gathered;  ///< parts of gradients that have come from the other, whole
  std::vector<std::uint64_t> pulled;    ///< parts of weights that have come from the other, whole
  std::vector<std::uint64_t> pushing;   ///< 2 * part + 1 while that part's gradients go to the other; else even

  // Where schedules exchange gradients (lane_stall.hpp); else empty
  std::vector<std::uint64_t> positions = {};  ///< by bucket and lane: ops that it has completed
  std::uint64_t first_step = 0;               ///< of this run
  std::vector<std::uint32_t> widths = {};     ///< of the model's layers
};

nlohmann::json to_json(const StepProgress& step_progress);
StepProgress step_progress_from(const nlohmann::json& json);

/// The earliest part that nodes lack, and a wait for it.
struct Stall {
  enum class Wait { gradients, weights, room };
  Wait wait = Wait::gradients;  ///< of the wait: for what. room: for the other to take gradients
  int waiting = -1;             ///< the node that waits
  int waited_for = -1;          ///< of the wait: for whom
  std::uint64_t part = 0;
  std::vector<int> suspects;      ///< one: the node that stopped the run. Several: at least one of them.
                                  ///< Ascending
  bool suspect_reported = false;  ///< the only suspect has reported its progress, so that it runs
};

/// What the nodes that have reported (at least one, of at least two) know together about all `nodes`.
Stall find_stall(const std::vector<StepProgress>& reports, int nodes);

/// The message of the process that started the nodes: which node stopped the run, how that is known, and what to do.
std::string describe(const Stall& stall, int layers, double timeout_s);

/// The message of one node, which knows only what it has waited for itself, and not which other nodes wait.
std::string describe_waits(int rank, const std::vector<std::string>& waits, double timeout_s);

/// The same, where it knows its progress.
std::string describe_alone(const StepProgress& step_progress, int layers, double timeout_s);

}  // namespace param_sync
