// Fails each test that leaves something behind in its process: what a context had must be gone when it ends. Linked
// into a test program, it needs no call.
//
// Compared are threads, descriptors, mapped memory files, this process's files in /dev/shm, and the main thread's
// signal mask; tests/unit/leftovers leaves one of each. Tolerated, since it lives as long as the process:
// - the CPU device's threads ("cpu_device"), which contexts share;
// - once libfabric is loaded, descriptors and threads that may be its own: all but memory files and our proxies'
// threads;
// - on its provider verbs, memory that a NIC may still read: the next contexts free it (IdleEndpoints);
// - on the CPU device in the shape of a GPU, memory of contexts that ended beside kernels: it is freed later
// (device_holdings.hpp);
// - descriptors of RDMA devices, which libibverbs keeps;
// - the thread of a sanitizer, which starts with the program's first thread: that one is started before the first test.
#include "tests/support/device_kind.hpp"
#include "tests/support/shm_leftovers.hpp"

#include <gtest/gtest.h>

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
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

struct Thread {
  std::string name;
  bool is_ending = false;
};

/// As /proc/[pid]/stat shows it: "number (name) state ...", and as the ninth field flags of the kernel.
Thread thread_of(const std::string& number) {
  constexpr unsigned long kExiting = 4;  // PF_EXITING of <linux/sched.h>
  std::ifstream file("/proc/self/task/" + number + "/stat");
  std::string line;
  std::getline(file, line);
  const auto open = line.find('('), close = line.rfind(')');
  if (close == std::string::npos) return {{}, true};  // it has ended meanwhile
  std::istringstream rest(line.substr(close + 1));
  std::string skipped;
  for (int field = 3; field < 9; ++field) rest >> skipped;
  unsigned long flags = 0;
  rest >> flags;
  return {line.substr(open + 1, close - open - 1), (flags & kExiting) != 0};
}

struct Snapshot {
  Counts threads;
  Counts descriptors;
  Counts mappings;  ///< memory files and files of /dev/shm
  Counts files;     ///< of this process, in /dev/shm
  sigset_t blocked{};
  bool libfabric = false;  ///< it is loaded
  int nameless_threads = 0;
};

/// Without digits: those of a thread, a port or an inode differ from one test to the next.
std::string kind_of(std::string name) {
  std::erase_if(name, [](char letter) { return letter >= '0' && letter <= '9'; });
  return name;
}

bool fabric_keeps_memory() {
  const char* provider = std::getenv("GPUSOCK_FABRIC_PROVIDER");
  return provider != nullptr && std::string(provider) == "verbs";
}

/// Of a descriptor that leads there: true if libfabric opens none of the kind.
bool is_memory_file(const std::string& target) { return target.starts_with("/memfd:"); }

/// True if libibverbs keeps it.
bool is_of_rdma_device(const std::string& target) {
  return target.starts_with("/dev/infiniband/") || target.starts_with("anon_inode:[infinibandevent]");
}

/// A thread that was joined is listed for a moment longer, but is ending. One that has no name of its own has the
/// program's.
void look_at_threads(Snapshot& now) {
  const std::string main = std::to_string(getpid()), program = thread_of(main).name;
  for (const std::string& number : names_in("/proc/self/task")) {
    const Thread thread = thread_of(number);
    if (thread.is_ending || thread.name == "cpu_device") continue;
    if (now.libfabric && thread.name != "gpusock-proxy") continue;
    ++now.threads[thread.name];
    now.nameless_threads += number != main && thread.name == program ? 1 : 0;
  }
}

void look_at_descriptors(Snapshot& now) {
  for (const std::string& number : names_in("/proc/self/fd")) {
    char path[256];
    const ssize_t bytes = readlink(("/proc/self/fd/" + number).c_str(), path, sizeof path);
    if (bytes <= 0) continue;  // the one that read the folder
    const std::string target(path, static_cast<std::size_t>(bytes));
    const bool is_tolerated = is_memory_file(target) ? test::like_a_gpu() : now.libfabric;
    if (is_tolerated || is_of_rdma_device(target)) continue;
    ++now.descriptors[kind_of(target)];
  }
}

void look_at_mappings(Snapshot& now) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find('/');
    if (name == std::string::npos) continue;
    const std::string file = line.substr(name);
    now.libfabric |= file.find("/libfabric.so") != std::string::npos;
    if (is_memory_file(file) || file.starts_with("/dev/shm/")) ++now.mappings[kind_of(file)];
  }
  if ((now.libfabric && fabric_keeps_memory()) || test::like_a_gpu()) now.mappings.clear();
}

Snapshot look() {
  Snapshot now;
  look_at_mappings(now);
  look_at_threads(now);
  look_at_descriptors(now);
  for (const auto& file : shm_files_of(getpid())) ++now.files[kind_of(file.filename())];
  const std::string page = "gpusock-" + std::to_string(getpid()) + "-";  // that observers read
  for (const std::string& file : names_in("/dev/shm")) {
    if (file.starts_with(page)) ++now.files[kind_of(file)];
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
  std::string text = more("threads", before.threads, now.threads) +
                     more("descriptors", before.descriptors, now.descriptors) +
                     more("memory files mapped", before.mappings, now.mappings) +
                     more("files in /dev/shm", before.files, now.files);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&before.blocked, signal) != sigismember(&now.blocked, signal))
      text += "\n  another signal mask: " + std::to_string(signal);
  }
  return text;
}

class LeftoversListener final : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override {
    std::thread([] {}).join();
  }

  void OnTestStart(const testing::TestInfo&) override { before_ = look(); }

  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Skipped()) return;
    // The CPU device's threads name themselves. Nothing tells when one that was just started has done so, so it is
    // looked at again for as long as it takes; the limit is for a test that leaves such a thread behind.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    Snapshot now = look();
    std::string left = leftovers(before_, now);
    while (!left.empty() && now.nameless_threads > before_.nameless_threads &&
           std::chrono::steady_clock::now() < until) {
      sched_yield();
      now = look();
      left = leftovers(before_, now);
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
