#pragma once
/// @file Blocks signals, which belong to the program: the library's threads receive none, and its writes cause none.

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

namespace gpusock::proxy {

/// Blocks all signals of the calling thread as long as this object lives. Threads that are started meanwhile keep them
/// blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// As long as this object lives, a write of the calling thread beyond the limit on file sizes (ulimit -f) fails with
/// EFBIG. Otherwise SIGXFSZ would end the program.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlocked() {
    const int error = errno;
    const timespec no_wait{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &no_wait);  // takes ours; an earlier one stays
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
  FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace gpusock::proxy
