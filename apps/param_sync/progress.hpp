#pragma once
/// @file The live line: rewritten on a terminal, a line every second elsewhere.

#include "node.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace param_sync {

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
