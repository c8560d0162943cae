#pragma once
/// @file How far a node is, and the live line that shows it: rewritten on a terminal, a line every second elsewhere.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace param_sync {

/// How far a node is.
struct Progress {
  std::uint64_t steps = 0;
  std::uint64_t steps_all = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t first_step = 0;  ///< of this run: not 0 where it went on from a checkpoint
  float loss = 0;                ///< of the latest step, this node's samples
  double train_s = 0;
  std::uint64_t pushed_per_step = 0;  ///< bytes that this node sends as gradients in a step; as many come as weights
  std::uint64_t dense_per_step = 0;   ///< what that would be without a budget
  double waited_s = 0;                ///< this node's forward kernels, for weights
  double accuracy = -1;               ///< on the test set, after the last epoch; less than 0: not known
};

using ProgressSink = std::function<void(const Progress&)>;

class ProgressLine {
 public:
  /// `rewrites`: on a terminal, each line takes the place of the one before. A launcher may give its processes a
  /// terminal of its own, and write what comes from it to a file: there, no line is rewritten.
  ProgressLine(int nodes, std::uint32_t batch, bool rewrites = true);
  ~ProgressLine();

  /// For how long a rank has waited for others. Where all ranks' are known, the line names the one that waited least:
  /// the others have waited for it. Any thread.
  void note_waiting(int rank, double waited_s);

  /// Shows `progress` of rank 0, unless the last was shown a moment ago, or standard output is a full pipe: training
  /// waits for no reader. The last step is always shown, at the latest when the program ends.
  void show(const Progress& progress);

 private:
  std::string text(const Progress& progress);
  std::string slowest();

  int nodes_;
  std::uint32_t batch_;
  bool terminal_;
  std::mutex noting_;
  std::map<int, double> waited_s_;  // by rank
  bool open_ = false;               // the terminal's cursor is at the end of a progress line
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace param_sync
