#pragma once
/// @file How far a node is, and the live line that shows it: on a terminal it is rewritten, else added every second.

#include "report/hold_up.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace param_sync {

/// How far a node is.
struct Progress {
  std::uint64_t steps = 0;
  std::uint64_t steps_all = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t first_step = 0;  ///< first step of this run: not 0 if it resumed from a checkpoint
  float loss = 0;                ///< of the latest step, mean over this node's samples
  double train_s = 0;
  std::uint64_t pushed_per_step = 0;  ///< bytes of gradients that this node sends in a step
  std::uint64_t dense_per_step = 0;   ///< what that would be without a budget or a codec
  std::uint64_t pulled_per_step = 0;  ///< bytes of weights that this node gets in a step
  double waited_s = 0;                ///< how long this node's kernels have waited for weights or factors
  double accuracy = -1;               ///< on the test set, after the last epoch that has ended; negative: unknown
};

using ProgressSink = std::function<void(const Progress&)>;

class ProgressLine {
 public:
  /// With `rewrites`, on a terminal, each line replaces the one before. A launcher may give its processes a terminal of
  /// its own, and write their output to a file: pass false there.
  ProgressLine(int nodes, std::uint32_t batch, bool rewrites = true);
  ~ProgressLine();

  /// Notes for how long a rank has waited for others, of the time in which it has trained. If the times of all ranks
  /// are known, the line names the rank that the others wait for, and which share of the last second or so. Any thread
  /// may call it.
  void note_waiting(int rank, double waited_s, double train_s);

  /// Shows `progress` of rank 0, unless a line was shown a moment ago, or standard output is a full pipe: training must
  /// not wait for a reader. The last step is always shown, at the latest when the program ends.
  void show(const Progress& progress);

 private:
  std::string text(const Progress& progress);
  std::string slowest();

  int nodes_;
  std::uint32_t batch_;
  bool terminal_;
  std::mutex noting_;
  HoldUpNow hold_up_;
  bool open_ = false;  // true if the terminal's cursor is at the end of a progress line
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace param_sync
