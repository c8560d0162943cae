#pragma once
/// @file Threads of the library receive no signals: those are the program's business.

#include <pthread.h>
#include <signal.h>

namespace gpusock::proxy {

/// Blocks all signals of the calling thread while it lives: threads that are started meanwhile have them blocked for good.
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

}  // namespace gpusock::proxy
