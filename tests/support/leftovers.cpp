// After every test: is there anything that it left behind in the process. Linked into a test program, it looks by itself.
//
// What a test's contexts had must be gone with them. Known to stay, for the reasons given below: the CPU device's threads; what
// libfabric and the RDMA libraries keep for the process.
#include <gtest/gtest.h>

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace gpusock {
namespace {

/// How many there are of each kind of thing, by what it is called.
using Counts = std::map<std::string, int>;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(open);
  return names;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Libraries that keep threads, descriptors and mappings of their own once a process has used them.
bool keeps_things(const std::string& mapped) {
  return mapped.find("libfabric") != std::string::npos || mapped.find("libibverbs") != std::string::npos;
}

struct Snapshot {
  Counts threads;
  Counts descriptors;
  Counts mappings;  ///< memory files and files of /dev/shm
  Counts files;     ///< of this process, in /dev/shm
  sigset_t blocked{};
  bool libraries = false;  ///< libraries are loaded that keep things
};

/// Without digits: those of a thread, a port or an inode differ from one test to the next.
std::string kind_of(std::string name) {
  std::erase_if(name, [](char letter) { return letter >= '0' && letter <= '9'; });
  return name;
}

Snapshot look() {
  Snapshot now;
  for (const std::string& thread : names_in("/proc/self/task")) {
    const std::string name = first_line_of("/proc/self/task/" + thread + "/comm");
    if (name != "cpu_device" && !name.empty()) ++now.threads[name];  // the pool's, which live as long as the process
  }
  for (const std::string& number : names_in("/proc/self/fd")) {
    char target[256];
    const ssize_t bytes = readlink(("/proc/self/fd/" + number).c_str(), target, sizeof target);
    if (bytes > 0) ++now.descriptors[kind_of({target, static_cast<std::size_t>(bytes)})];
  }
  now.descriptors.erase("/proc//fd");  // the one that looks
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    now.libraries |= keeps_things(line);
    const auto name = line.find('/');
    if (name == std::string::npos) continue;
    const std::string file = line.substr(name);
    if (file.starts_with("/memfd:") || file.starts_with("/dev/shm/")) ++now.mappings[kind_of(file)];
  }
  const std::string own = std::to_string(getpid());
  for (const std::string& file : names_in("/dev/shm")) {
    if (file.find(own) != std::string::npos) ++now.files[kind_of(file)];
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &now.blocked);
  return now;
}

/// What `now` has more of than `before`, one to a line.
std::string more(const char* what, const Counts& before, const Counts& now) {
  std::string text;
  for (const auto& [name, count] : now) {
    const auto found = before.find(name);
    const int had = found == before.end() ? 0 : found->second;
    if (count > had) text += "\n  " + std::to_string(count - had) + " " + what + " more: " + name;
  }
  return text;
}

std::string leftovers(const Snapshot& before, const Snapshot& now) {
  std::string text = more("memory files mapped", before.mappings, now.mappings);
  if (!now.libraries) {
    text += more("threads", before.threads, now.threads) + more("descriptors", before.descriptors, now.descriptors) +
            more("files in /dev/shm", before.files, now.files);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&before.blocked, signal) != sigismember(&now.blocked, signal)) text += "\n  another signal mask: " + std::to_string(signal);
  }
  return text;
}

class LeftoversListener final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { before_ = look(); }

  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Skipped()) return;
    // A thread that was joined is listed for a moment longer.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::string left = leftovers(before_, look());
    while (!left.empty() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      left = leftovers(before_, look());
    }
    EXPECT_EQ(left, "") << "this test has left things behind";
  }

  Snapshot before_;
};

[[maybe_unused]] const bool listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new LeftoversListener);
  return true;
}();

}  // namespace
}  // namespace gpusock
