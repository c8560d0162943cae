#pragma once
/// @file A process of the same user that connects to this one, says hello, and echoes until the end.

#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"
#include "tests/support/shm_leftovers.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

extern char** environ;

namespace gpusock {

/// What that process does: connects, says hello, echoes until the end.
inline int be_peer(const char* where) {
  Context context;
  const Net net = context.net();
  const Socket socket = net.connect(this_thread(), Endpoint::parse(where), patience());
  if (socket < 0) return 1;
  char buffer[4096];
  if (net.send(this_thread(), socket, "hello", 5, kWaitAll, patience()) != 5) return 2;
  for (;;) {
    const auto bytes = net.recv(this_thread(), socket, buffer, sizeof buffer, 0, patience());
    if (bytes == 0) break;
    if (bytes < 0 || net.send(this_thread(), socket, buffer, static_cast<std::size_t>(bytes), kWaitAll, patience()) < 0)
      return 3;
  }
  net.close(this_thread(), socket);
  return 0;
}

/// A peer process, connected to this one.
class Peer {
 public:
  Peer(const Net& net, const std::string& link) {
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=" + link), 1, patience());
    Endpoint where;
    EXPECT_EQ(net.getsockname(listener, where), 0);
    std::string at = where.host_port() + ",link=" + link;
    std::string self = "/proc/self/exe", flag = "--peer";
    char* const arguments[] = {self.data(), flag.data(), at.data(), nullptr};
    EXPECT_EQ(posix_spawn(&process_, self.c_str(), nullptr, nullptr, arguments, environ), 0);
    socket = net.accept(this_thread(), listener, patience());
    EXPECT_GE(socket, 0);
    char hello[5] = "";
    EXPECT_EQ(net.recv(this_thread(), socket, hello, 5, kWaitAll, patience()), 5);
    EXPECT_EQ(std::memcmp(hello, "hello", 5), 0);
    net.close(this_thread(), listener);
  }
  ~Peer() {
    if (process_ > 0) {
      kill(SIGKILL);
      wait();
    }
  }
  void kill(int signal) const { ::kill(process_, signal); }
  /// Returns when no thread of it runs any more.
  void stop() const {
    kill(SIGSTOP);
    waitpid(process_, nullptr, WUNTRACED);
  }
  int wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    remove_shm_files_of(process_);  // where it was killed
    process_ = -1;
    return status;
  }

  Socket socket = -1;

 private:
  pid_t process_ = -1;
};

}  // namespace gpusock
