#pragma once
/// @file SIGINT and SIGTERM as calls on a thread of their own, where everything may be called.

#include <functional>
#include <thread>

namespace param_sync {

/// Keeps SIGINT and SIGTERM from ending the process. Before any other thread is started: they inherit it.
void block_stop_signals();

/// Calls `on_stop` once, on its own thread, when SIGINT or SIGTERM comes while it lives.
class StopWatcher {
 public:
  explicit StopWatcher(std::function<void()> on_stop);

 private:
  std::jthread thread_;
};

}  // namespace param_sync
