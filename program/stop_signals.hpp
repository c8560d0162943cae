#pragma once
/// @file SIGINT and SIGTERM as what a program waits for, or as calls on a thread of their own, where everything may be
/// called.

#include <functional>
#include <thread>

namespace gpusock::program {

/// Keeps SIGINT and SIGTERM from ending the process. Before any other thread is started: they inherit it.
void block_stop_signals();

/// Lets SIGINT and SIGTERM end the process again, also one that has come meanwhile. For the end of a program, where it
/// may wait for a reader of its results. Call it when no StopWatcher is left.
void unblock_stop_signals();

/// Waits until SIGINT or SIGTERM comes, or `ended` (asked about ten times a second) is true.
void wait_for_stop(const std::function<bool()>& ended);

/// Calls `on_stop` once, on its own thread, with the signal when SIGINT or SIGTERM comes while it lives.
class StopWatcher {
 public:
  explicit StopWatcher(std::function<void(int signal)> on_stop);
  /// Waits for a call of `on_stop` that runs.
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

 private:
  std::jthread thread_;
};

/// Ends the process by this signal, as if it had never been kept from that: so a process that waits for it learns why
/// it ended.
[[noreturn]] void end_by(int signal);

}  // namespace gpusock::program
