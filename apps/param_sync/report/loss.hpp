#pragma once
/// @file What nodes tell the process that started them when they cannot go on, and whether a stall ended the run.

#include "report/stall.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <vector>

namespace param_sync {

/// Why a node cannot go on.
struct Loss {
  enum class Cause {
    lost,     ///< another node was lost, or the nodes could not be connected
    stalled,  ///< the node has waited for --timeout
    unknown,  ///< a peer has ended the run and did not know which node was lost
  };
  Cause cause = Cause::lost;
  std::optional<StepProgress> step_progress = {};  ///< set if the node was training
};

nlohmann::json to_json(const Loss& loss);
Loss loss_from(const nlohmann::json& json);

/// The losses that the nodes of a run have told, in any order.
class Losses {
 public:
  void add(const Loss& loss);

  /// True if the run ended because nodes waited for too long. The first node that knows the cause decides, since nodes
  /// that end later may only have lost the first one. A node whose cause is unknown decides nothing: the peer that
  /// ended the run has told its own cause, but its message may be read later.
  bool stalled() const { return cause_ == Loss::Cause::stalled; }

  /// The progress of each node that was training.
  const std::vector<StepProgress>& step_progress() const { return step_progress_; }

 private:
  Loss::Cause cause_ = Loss::Cause::unknown;
  std::vector<StepProgress> step_progress_;
};

}  // namespace param_sync
