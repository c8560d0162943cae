#pragma once
/// @file Checkpoints: what a node needs to go on from a step, in a safetensors file of its own.
///
/// Each node writes all weights and its optimizer state, so that nodes need no common file system. A file is written
/// under another name, brought to the disk and renamed, so a file with its final name is whole. The newest three of a
/// rank are kept, because a node that is lost may lack the newest two that the others have.

#include "layout/layout.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

inline constexpr const char* kCheckpointSuffix = ".safetensors";

/// Throws gpusock::Error (ENOENT), which says that there are checkpoints, and none with the files of all ranks.
[[noreturn]] void throw_none_is_whole(const std::string& folder);

struct Checkpoint {
  std::uint64_t step = 0;      ///< number of steps that are done
  std::vector<float> weights;  ///< the whole model's
  std::vector<float> states;   ///< of the update (param_sync/update); other nodes' shards are not used
};

/// The checkpoints of one rank in a folder. All members throw gpusock::Error, which names the file and says what to do.
class CheckpointFiles {
 public:
  /// Makes the folder if there is none. `settings`: those that all nodes of a run share, by RunSetting. Throws if the
  /// folder has checkpoints of an earlier version.
  CheckpointFiles(std::string folder, int rank, const Layout& layout, std::span<const std::uint64_t> settings);

  /// Returns the newest step from which this rank can go on; 0 if there is none, as some rank has written none. If the
  /// folder also has other ranks' files, all ranks have that step. Throws if all ranks have files and no common step
  /// (ENOENT), or if there are files of a run with other settings (EINVAL): a new run would overwrite them.
  std::uint64_t latest() const;

  /// The steps of this rank's checkpoints, newest first.
  std::vector<std::uint64_t> steps() const { return steps_of(rank_); }

  /// Also throws if the file is damaged (EBADMSG), or is of a run with other settings (EINVAL).
  Checkpoint read(std::uint64_t step) const;

  /// Writes a checkpoint, and removes all but the newest three.
  void write(const Checkpoint& checkpoint) const;

 private:
  std::string path(int rank, std::uint64_t step) const;
  std::vector<std::uint64_t> steps_of(int rank) const;
  std::vector<std::uint64_t> common_steps() const;
  void require_settings(const std::string& name, const nlohmann::json& about) const;
  [[noreturn]] void throw_damaged(const std::string& name, std::uint64_t step) const;

  std::string folder_;
  int rank_;
  Layout layout_;
  std::vector<std::uint64_t> settings_;
};

}  // namespace param_sync
