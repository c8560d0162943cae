#pragma once
/// @file Which node stopped a run: what each node knows when it has waited for too long, and what all know together.
///
/// In a step all nodes wait for each other, so if one node stops, all others wait, most of them for nodes that only
/// wait, too. Which of its waits a node gives up first is chance, so it reports how far all its lanes are.

#include "layout/sample_shape.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// How far the lanes of a node are.
struct StepProgress {
  int rank = -1;                              ///< the node that reports
  std::vector<std::uint64_t> positions = {};  ///< by bucket and lane: how many ops the lane has completed
  std::uint64_t first_step = 0;               ///< of this run
  SampleShape sample = {};                    ///< of the data, on which the model depends
};

nlohmann::json to_json(const SampleShape& sample);
SampleShape sample_shape_from(const nlohmann::json& json);

nlohmann::json to_json(const StepProgress& step_progress);
StepProgress step_progress_from(const nlohmann::json& json);

/// What the nodes wait for, and the node that owes it (lane_stall.hpp).
struct Stall {
  enum class Wait { gradients, weights, room };
  Wait wait = Wait::gradients;    ///< what `waiting` waits for. room: that the other node takes gradients
  int waiting = -1;               ///< the node that waits
  int waited_for = -1;            ///< the node that it waits for
  std::uint64_t step = 0;         ///< the step in which it waits
  std::vector<int> suspects;      ///< ascending. One: it stopped the run. Several: at least one of them did
  bool suspect_reported = false;  ///< true if the only suspect has reported its progress, and so still runs
};

/// Returns "rank 1's gradients of step 7", for example. `step` counts from 0, the text from 1.
std::string wait_text(Stall::Wait wait, int waited_for, std::uint64_t step);

/// Returns the message of the process that started the nodes: which node stopped the run, how it knows, and what to do.
std::string describe(const Stall& stall, double timeout_s);

/// Returns the message of one node, which knows only what it has waited for itself, not which other nodes wait.
std::string describe_waits(int rank, const std::vector<std::string>& waits, double timeout_s);

}  // namespace param_sync
