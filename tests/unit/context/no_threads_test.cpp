// No thread is to be had: a limit on threads, which a test as root cannot set. A stack that no address space holds is
// refused as well. Each test is a process of its own: the pool of the CPU device lives as long as its process.
#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"
#include "host_proxy/base/no_thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace gpusock {
namespace {

/// While it lives no thread can be started in this process.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t impossible = before_;
    pthread_attr_setstacksize(&impossible, std::size_t{1} << 60);
    pthread_setattr_default_np(&impossible);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

bool same(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&a, signal) != sigismember(&b, signal)) return false;
  }
  return true;
}

/// True if `what` throws an Error with EAGAIN that says what to do: here memory for the stack is what lacks.
template <class What>
bool is_refused(What what) {
  try {
    what();
  } catch (const Error& error) {
    return error.code().value() == EAGAIN && std::string(error.what()).find("ulimit -v") != std::string::npos;
  }
  return false;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

__global__ void set(int* word, int value) { atomicExch(word, value); }

class NoThread : public testing::Test {
 protected:
  NoThread() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(NoThread, WithMemoryForAStackTheLimitOnThreadsIsNamed) {
  EXPECT_NE(std::string(proxy::remedy_for_no_thread()).find("ulimit -u"), std::string::npos);
  const NoThreads shortage;
  EXPECT_NE(std::string(proxy::remedy_for_no_thread()).find("ulimit -v"), std::string::npos);
}

void contexts_are_refused() {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const NoThreads shortage;
    require(is_refused([] { Context context; }), "a context is refused");
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  require(same(before, after), "the signals are as they were");
  Context context;
  std::_Exit(0);
}

TEST_F(NoThread, ContextsAreRefusedAndSignalsAreAsTheyWere) {
  EXPECT_EXIT(contexts_are_refused(), testing::ExitedWithCode(0), "");
}

void launches_are_refused() {
  Context context;
  Mapped<int> word(context, 1);
  {
    const NoThreads shortage;
    require(is_refused([&] { launch(context, {}, set, word.data(), 1); }), "a launch is refused");
    context.synchronize();
    require(word[0] == 0, "what was refused has not run");
  }
  launch(context, {}, set, word.data(), 2);
  context.synchronize();
  require(word[0] == 2, "the next launch runs");
  std::_Exit(0);
}

TEST_F(NoThread, LaunchesAreRefusedWithNothingQueued) {
  EXPECT_EXIT(launches_are_refused(), testing::ExitedWithCode(0), "");
}

__global__ void wait_for(int* word) {
  while (atomicAdd(word, 0) == 0) __nanosleep(1000);
}

/// The pool has workers, but each is in a block that waits.
void launches_beside_waiting_ones_are_refused() {
  Context context;
  Stream other(context);
  Mapped<int> word(context, 1);
  launch(context, {}, wait_for, word.data());
  bool refused = false;
  {
    const NoThreads shortage;
    refused = is_refused([&] { launch(context, {.stream = &other}, set, word.data(), 1); });
  }
  // With one processor, and that one busy, the launch waits for a worker: it gets one as soon as there are threads
  // again.
  require(refused || std::thread::hardware_concurrency() < 2, "a launch that no worker can take is refused");
  if (refused) std::atomic_ref(word[0]).store(1);
  context.synchronize();
  std::_Exit(0);
}

TEST_F(NoThread, LaunchesBesideBlocksThatWaitAreRefusedOrRun) {
  EXPECT_EXIT(launches_beside_waiting_ones_are_refused(), testing::ExitedWithCode(0), "");
}

/// Blocks beyond the threads that there are run one after the other.
void grids_run_on_the_threads_there_are() {
  Context context;
  Mapped<int> count(context, 1);
  launch(context, {}, set, count.data(), 0);
  context.synchronize();
  const NoThreads shortage;
  launch(
      context, {.grid = 100, .block = 3}, +[](int* sum) { atomicAdd(sum, 1); }, count.data());
  context.synchronize();
  require(count[0] == 300, "every block ran");
  std::_Exit(0);
}

TEST_F(NoThread, GridsRunOnTheThreadsThatThereAre) {
  EXPECT_EXIT(grids_run_on_the_threads_there_are(), testing::ExitedWithCode(0), "");
}

__global__ void meet(int* arrived, int count) {
  atomicAdd(arrived, 1);
  while (atomicAdd(arrived, 0) < count) __nanosleep(1000);
}

/// Blocks that wait for each other, on fewer threads than blocks: they meet once there are threads again.
void blocks_meet_once_there_are_threads() {
  constexpr int kBlocks = 12;
  Context context;
  Mapped<int> arrived(context, 1);
  launch(context, {}, set, arrived.data(), 0);
  context.synchronize();
  {
    const NoThreads shortage;
    launch(context, {.grid = kBlocks}, meet, arrived.data(), kBlocks);
    while (std::atomic_ref(arrived[0]).load() == 0) std::this_thread::yield();
  }
  context.synchronize();
  require(arrived[0] == kBlocks, "every block ran");
  std::_Exit(0);
}

TEST_F(NoThread, BlocksThatWaitForEachOtherMeetOnceThereAreThreads) {
  EXPECT_EXIT(blocks_meet_once_there_are_threads(), testing::ExitedWithCode(0), "");
}

__global__ void accept_one(Net net, Socket listener, int* ended) {
  net.accept(this_thread(), listener);
  atomicAdd(ended, 1);
}

void cancel_ends_blocks_without_threads() {
  Context context;
  Mapped<int> ended(context, 1);
  const Socket listener = context.net().listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 1);
  launch(context, {}, set, ended.data(), 0);
  context.synchronize();
  const NoThreads shortage;
  launch(context, {.grid = 40}, accept_one, context.net(), listener, ended.data());
  context.cancel();
  context.synchronize();
  require(ended[0] == 40, "every block ran and ended");
  std::_Exit(0);
}

TEST_F(NoThread, CancelEndsBlocksThatWaitForAThread) {
  EXPECT_EXIT(cancel_ends_blocks_without_threads(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpusock
