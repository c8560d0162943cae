#pragma once
/// @file Threads of the library receive no signals: those are the program's business. Nor does the library send it any.

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

namespace gpusock::proxy {

/// Blocks all signals of the calling thread while it lives: threads that are started meanwhile have them blocked for
/// good.
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

/// While it lives, what the calling thread writes beyond the limit on the size of files (ulimit -f) fails with EFBIG.
/// Without it SIGXFSZ would end the program.
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
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &no_wait);  // ours; the program's stays
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
