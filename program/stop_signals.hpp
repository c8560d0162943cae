#pragma once
/// @file SIGINT and SIGTERM without signal handlers: a program waits for them, or they cause a call on a thread of its
/// own, which may call any function.

#include <functional>
#include <thread>

namespace gpusock::program {

/// Keeps SIGINT and SIGTERM from ending the process. Call it before any other thread is started: threads inherit it.
void block_stop_signals();

/// Lets SIGINT and SIGTERM end the process again; one that came in the meantime does so too. For the end of a program,
/// where it may wait for a reader of its results. Call it when no StopWatcher is left.
void unblock_stop_signals();

/// Waits until SIGINT or SIGTERM comes, or `ended` (called about ten times a second) returns true.
void wait_for_stop(const std::function<bool()>& ended);

/// While it exists, calls `on_stop` with the signal, once, on a thread of its own, when SIGINT or SIGTERM comes.
class StopWatcher {
 public:
  explicit StopWatcher(std::function<void(int signal)> on_stop);
  /// Waits until a running call of `on_stop` has returned.
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

 private:
  std::jthread thread_;
};

/// Ends the process by this signal, as if the signal had never been blocked. So a process that waits for this one
/// learns why it ended.
[[noreturn]] void end_by(int signal);

}  // namespace gpusock::program
