#pragma once
/// @file A forked process that a test stops or kills.

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace gpusock::proxy {

/// A process of its own, which does something, says so, and waits for its end.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& act) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    id_ = fork();
    if (id_ == 0) {
      act();
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    }
    ::close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
  }
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  void stop() { signal(SIGSTOP, WUNTRACED); }
  void end() {
    if (id_ > 0) signal(SIGKILL, 0);
    id_ = 0;
  }

 private:
  void signal(int number, int options) {
    kill(id_, number);
    int status;
    EXPECT_EQ(waitpid(id_, &status, options), id_);
  }
  pid_t id_;
};

}  // namespace gpusock::proxy
