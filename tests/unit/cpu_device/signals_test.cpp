// The program's signals are not for the threads that run kernels.
#include "cpu_device/launch.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

/// The signals that each thread of this process but the caller has blocked, by the thread's name.
std::vector<std::pair<std::string, unsigned long long>> blocked_signals() {
  std::vector<std::pair<std::string, unsigned long long>> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), closedir);
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == gettid()) continue;
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    std::string name;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) name = line.substr(6);
      if (line.starts_with("SigBlk:")) threads.emplace_back(name, std::strtoull(line.c_str() + 8, nullptr, 16));
    }
  }
  return threads;
}

bool contains(unsigned long long set, int signal) { return (set >> (signal - 1) & 1) != 0; }

TEST(SignalsOfTheProgram, AreBlockedWhereKernelsRun) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  cpu_device::Stream stream;
  stream.enqueue({}, "nothing", [] {});
  stream.synchronize();
  const auto threads = blocked_signals();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  int workers = 0;
  for (const auto& [name, blocked] : threads) {
    if (name != "cpu_device") continue;
    ++workers;
    for (const int signal : {SIGTERM, SIGINT, SIGALRM, SIGUSR1, SIGCHLD, SIGPIPE})
      EXPECT_TRUE(contains(blocked, signal)) << signal;
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
      EXPECT_FALSE(contains(blocked, fault)) << fault;
  }
  EXPECT_GE(workers, 1);
  for (int signal = 1; signal < NSIG; ++signal) EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}

}  // namespace
