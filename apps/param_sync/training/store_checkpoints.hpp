#pragma once
/// @file Checkpoints of a training through a store (--sync bsp). Another number of nodes can go on from them: each node
/// holds what its files have, as after a loss, and all put it together.

#include "checkpoint/checkpoint.hpp"
#include "data/dataset.hpp"
#include "settings/config.hpp"
#include "training/node.hpp"

namespace param_sync {

/// The number of the view that HeldTraining has of a checkpoint. Those of views that were begun are greater.
inline constexpr std::uint64_t kCheckpointView = 1;

/// The files of one rank of a view of config.nodes. They are in a folder of their own for each number of nodes, as
/// steps are counted anew with each. Throws as CheckpointFiles does.
CheckpointFiles checkpoint_files(const Config& config, const Dataset& data);

/// Returns what this node has of the checkpoint from which the run goes on (--resume): of the newest one, in samples,
/// that all ranks have whose files are here. If all ranks' files are here, each node takes its share of them, and else
/// all. Returns nothing if there is none here. Throws gpusock::Error as CheckpointFiles does, and (ENOENT) with
/// --resume latest there are files, and no step that all have whose files are here.
std::optional<HeldTraining> find_checkpoint(const Config& config, const Dataset& data);

/// Removes what is here of the view before, which had so many nodes. Called once all nodes have a checkpoint of this
/// view. Those of other runs stay.
void remove_checkpoints_before(const Config& config, int nodes_before);

}  // namespace param_sync
