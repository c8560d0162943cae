#pragma once
/// @file Checkpoints: what a node needs to go on from a step, in a safetensors file of its own.
///
/// Each node writes all weights and its optimizer state, so that nodes need no common file system. A file is written
/// under another name, brought to the disk and renamed: one with its final name is whole. The newest two of a rank are
/// kept, because a node that is lost may lack the last one that the others have.

#include "layout/layout.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

inline constexpr const char* kCheckpointSuffix = ".safetensors";

struct Checkpoint {
  std::uint64_t step = 0;      ///< steps that are done
  std::vector<float> weights;  ///< the whole model's
  std::vector<float> states;   ///< of the update (param_sync/update); other nodes' shards are not used
};

/// The checkpoints of one rank in a folder. All members throw gpusock::Error that names the file, and what to do.
class CheckpointFiles {
 public:
  /// `settings`: what all nodes of a run share, by RunSetting. Makes the folder where there is none.
  /// Throws where the folder has checkpoints of an earlier version.
  CheckpointFiles(std::string folder, int rank, const Layout& layout, std::span<const std::uint64_t> settings);

  /// The newest step from which this rank can go on; 0 where there is none. Where the folder has other ranks' files as
  /// well, all ranks have that step. Throws where there is none but the folder has files of a run with other settings:
  /// to begin anew would overwrite them.
  std::uint64_t latest() const;

  /// Throws also where the file is damaged (EBADMSG), or is of a run with other settings (EINVAL).
  Checkpoint read(std::uint64_t step) const;

  /// Writes a checkpoint and removes the ones before the last two.
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
