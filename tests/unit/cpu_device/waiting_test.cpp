#include "tests/unit/cpu_device/run.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <vector>

namespace cpu_device::test {
namespace {

std::uint64_t processor_ns() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

TEST(Waiting, RelaxLetsEveryOtherThreadOfTheBlockRun) {
  int flag = 0, waited = 0;
  run(
      {1, 256},
      +[](int* go, int* count) {
        if (threadIdx.x + 1 == blockDim.x) {
          *go = 1;
        } else {
          while (!*go) {
            relax(0);
          }
          ++*count;  // no atomic: the threads of a block take turns
        }
      },
      &flag, &waited);
  EXPECT_EQ(waited, 255);
}

TEST(Waiting, ThreadsAtABarrierDoNotKeepAWaitingOneBusy) {
  // The others are at the barrier; the one that waits is alone with its turns, and the host ends them.
  int go = 0, after = 0;
  Stream stream;
  stream.enqueue({1, 64}, "lead", [&] {
    if (threadIdx.x == 0) {
      const auto began_ns = clock_ns();
      while (atomicAdd(&go, 0) == 0) relax(clock_ns() - began_ns);
    }
    __syncthreads();
    atomicAdd(&after, 1);
  });
  EXPECT_FALSE(stream.idle());
  atomicExch(&go, 1);
  stream.synchronize();
  EXPECT_EQ(after, 64);
}

TEST(Waiting, LongWaitsUseHardlyAnyProcessor) {
  constexpr std::uint64_t kLongNs = 300'000'000;
  for (const LaunchShape& shape :
       {LaunchShape{.grid = 1, .block = 8}, LaunchShape{.grid = 8, .block = 8, .blocks_share_threads = true}}) {
    const auto before_ns = processor_ns();
    run(
        shape,
        +[](std::uint64_t duration_ns) {
          const auto began_ns = clock_ns();
          for (auto now_ns = began_ns; now_ns - began_ns < duration_ns; now_ns = clock_ns()) relax(now_ns - began_ns);
        },
        kLongNs);
    if (kThreadSanitized && shape.blocks_share_threads) continue;  // each of the eight blocks has a thread
    EXPECT_LT(processor_ns() - before_ns, kLongNs / 2);
  }
}

TEST(Waiting, NanosleepLastsAtLeastAsLongAsAsked) {
  std::vector<std::uint64_t> slept_ns(4);
  run(
      {1, 4},
      +[](std::uint64_t* out) {
        const auto began_ns = clock_ns();
        __nanosleep(3'000'000);
        out[threadIdx.x] = clock_ns() - began_ns;
      },
      slept_ns.data());
  for (const auto duration_ns : slept_ns) EXPECT_GE(duration_ns, 3'000'000u);
}

TEST(Waiting, ALoopAroundAShortNanosleepBacksOffAsOneWait) {
  const auto before_ns = processor_ns();
  run(
      {1, 1}, +[] {
        const auto began_ns = clock_ns();
        while (clock_ns() - began_ns < 300'000'000) __nanosleep(100);
      });
  EXPECT_LT(processor_ns() - before_ns, 150'000'000u);
}

TEST(Waiting, TheDeviceClockIsTheHostsMonotonicClock) {
  long long inside = 0;
  const auto before_ns = clock_ns();
  run(
      {}, +[](long long* out) { *out = clock64(); }, &inside);
  EXPECT_GE(static_cast<std::uint64_t>(inside), before_ns);
  EXPECT_LE(static_cast<std::uint64_t>(inside), clock_ns());
}

/// Two words of a Bell, and who rings it.
struct Words {
  std::atomic<std::uint32_t> rung{0}, sleepers{0};

  Bell bell() { return {&rung, &sleepers}; }
  void ring() {
    rung.fetch_add(1);
    if (sleepers.load() != 0) syscall(SYS_futex, &rung, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
};

TEST(Waiting, ABellEndsALongSleep) {
  constexpr unsigned kQuestions = 300;
  constexpr std::uint64_t kWaitedNs = 10'000'000'000;  // so a sleep lasts 20 ms, unless it is ended
  Words asked, answered;
  unsigned question = 0, answer = 0;
  Stream stream;
  stream.enqueue({1, 4}, "answers", [&] {
    for (unsigned round = 1; round <= kQuestions; ++round) {
      if (threadIdx.x == 0) {
        while (atomicAdd(&question, 0u) != round) relax(kWaitedNs, asked.bell());
        atomicExch(&answer, round);
        answered.ring();
      }
      __syncthreads();
    }
  });
  std::vector<std::uint64_t> took_ns(kQuestions);
  for (unsigned round = 1; round <= kQuestions; ++round) {
    const std::uint64_t began_ns = clock_ns();
    atomicExch(&question, round);
    asked.ring();
    while (atomicAdd(&answer, 0u) != round) relax(kWaitedNs, answered.bell());
    took_ns[round - 1] = clock_ns() - began_ns;
  }
  stream.synchronize();
  std::nth_element(took_ns.begin(), took_ns.begin() + kQuestions / 2, took_ns.end());
  EXPECT_LT(took_ns[kQuestions / 2], 15'000'000u) << "the sleeps lasted as long as they may";
}

TEST(Waiting, AThreadWithABellLooksOnceMoreBeforeItSleeps) {
  Words words;
  relax(10'000'000'000, words.bell());  // what has come since the last look is not known yet
  words.rung.fetch_add(1);              // it comes, and nobody sleeps
  const auto began_ns = clock_ns();
  relax(10'000'000'000, words.bell());
  EXPECT_LT(clock_ns() - began_ns, 15'000'000u);
}

TEST(Waiting, HostThreadsMayRelaxAndSleepToo) {
  const auto began_ns = clock_ns();
  relax(0);
  relax(10'000);
  relax(1'000'000);
  __nanosleep(1'000'000);
  EXPECT_GE(clock_ns() - began_ns, 1'000'000u);
}

}  // namespace
}  // namespace cpu_device::test
