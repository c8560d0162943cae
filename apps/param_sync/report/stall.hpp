#pragma once
/// @file Which node stopped a run: what each node knows when it has waited for too long, and what all know together.
///
/// In a step all nodes wait for each other, so if one node stops, all others wait, most of them for nodes that only
/// wait, too. Which of its waits a node gives up first is chance. So it reports how far all its lanes are.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// How far the lanes of a node are.
struct StepProgress {
  int rank = -1;                              ///< the node that reports
  std::vector<std::uint64_t> positions = {};  ///< by bucket and lane: ops that it has completed
  std::uint64_t first_step = 0;               ///< of this run
  std::vector<std::uint32_t> widths = {};     ///< of the model's layers
};

nlohmann::json to_json(const StepProgress& step_progress);
StepProgress step_progress_from(const nlohmann::json& json);

/// What the nodes wait for, followed to the node that owes it (lane_stall.hpp).
struct Stall {
  enum class Wait { gradients, weights, room };
  Wait wait = Wait::gradients;    ///< of the wait: for what. room: for the other to take gradients
  int waiting = -1;               ///< the node that waits
  int waited_for = -1;            ///< of the wait: for whom
  std::uint64_t step = 0;         ///< that the node which waits is in
  std::vector<int> suspects;      ///< one: the node that stopped the run. Several: at least one of them.
                                  ///< Ascending
  bool suspect_reported = false;  ///< the only suspect has reported its progress, so that it runs
};

/// "rank 1's gradients of step 7". Steps are counted from 0, and told from 1 on.
std::string wait_text(Stall::Wait wait, int waited_for, std::uint64_t step);

/// The message of the process that started the nodes: which node stopped the run, how that is known, and what to do.
std::string describe(const Stall& stall, double timeout_s);

/// The message of one node, which knows only what it has waited for itself, and not which other nodes wait.
std::string describe_waits(int rank, const std::vector<std::string>& waits, double timeout_s);

}  // namespace param_sync
