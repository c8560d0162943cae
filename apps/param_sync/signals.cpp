#include "signals.hpp"

#include <csignal>
#include <ctime>
#include <utility>

namespace param_sync {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StopWatcher::StopWatcher(std::function<void()> on_stop)
    : thread_([call = std::move(on_stop)](std::stop_token stop) {
        const sigset_t set = stop_signals();
        const timespec turn{0, 100'000'000};  // how long the watcher's own end may take
        while (!stop.stop_requested()) {
          if (sigtimedwait(&set, nullptr, &turn) > 0) {
            call();
            return;
          }
        }
      }) {}

}  // namespace param_sync
