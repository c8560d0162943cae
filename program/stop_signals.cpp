#include "program/stop_signals.hpp"

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace gpusock::program {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

constexpr timespec kTurn{0, 100'000'000};  // time between two calls of `ended`
constexpr int kWake = SIGURG;              // ends a watcher's wait; has no effect on a thread that does not wait for it

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void unblock_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void wait_for_stop(const std::function<bool()>& ended) {
  const sigset_t set = stop_signals();
  while (sigtimedwait(&set, nullptr, &kTurn) < 0 && !ended()) {
  }
}

StopWatcher::StopWatcher(std::function<void(int signal)> on_stop)
    : thread_([call = std::move(on_stop)](std::stop_token stop) {
        sigset_t set = stop_signals();
        sigaddset(&set, kWake);
        pthread_sigmask(SIG_BLOCK, &set, nullptr);  // first: a later kWake then stays pending until it waits
        while (!stop.stop_requested()) {
          if (const int signal = sigwaitinfo(&set, nullptr); signal > 0 && signal != kWake) {
            call(signal);
            return;
          }
        }
      }) {}

StopWatcher::~StopWatcher() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), kWake);
}

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
  std::abort();  // the signal is one that does not end a process
}

}  // namespace gpusock::program
