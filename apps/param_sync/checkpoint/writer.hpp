#pragma once
/// @file Writes checkpoints while the training goes on.

#include "checkpoint/checkpoint.hpp"

#include <future>
#include <utility>

namespace param_sync {

/// One thread writes at a time. All members throw gpusock::Error as CheckpointFiles::write() does.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointFiles files) : files_(std::move(files)) {}

  const CheckpointFiles& files() const { return files_; }

  /// Begins to write a checkpoint, once the last one is on the disk. So while this node writes one, the others may have
  /// written the next two, and no more: they need this node's next step for that.
  void begin(Checkpoint checkpoint) {
    finish();
    writing_ = std::async(std::launch::async, [this, of = std::move(checkpoint)] { files_.write(of); });
  }

  /// Waits until the last checkpoint is on the disk.
  void finish() {
    if (writing_.valid()) writing_.get();
  }

 private:
  CheckpointFiles files_;
  std::future<void> writing_;  ///< its destructor waits
};

}  // namespace param_sync
