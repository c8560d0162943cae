#include "tests/unit/cpu_device/run.hpp"

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace cpu_device::test {
namespace {

bool contains(const KernelFault& fault, const char* text) {
  return std::string(fault.what()).find(text) != std::string::npos;
}

__global__ void throw_in_the_middle(int* ran) {
  atomicAdd(ran, 1);
  if (blockIdx.x == 1 && threadIdx.x == 5) throw std::runtime_error("the water boiled over");
  __syncthreads();
}

TEST(Faults, AnExceptionIsReportedWithKernelBlockThreadAndText) {
  int ran = 0;
  const auto fault = fault_of(
      {2, {4, 2}},
      +[](int* count) {
        atomicAdd(count, 1);
        if (blockIdx.x == 1 && threadIdx.x == 2 && threadIdx.y == 1) throw std::runtime_error("the water boiled over");
      },
      &ran);
  EXPECT_EQ(fault.block().x, 1u);
  EXPECT_EQ(fault.thread().x, 2u);
  EXPECT_EQ(fault.thread().y, 1u);
  EXPECT_TRUE(contains(fault, "block (1,0,0), thread (2,1,0)")) << fault.what();
  EXPECT_TRUE(contains(fault, "an exception left the kernel: the water boiled over")) << fault.what();
}

TEST(Faults, NameTheKernel) {
  int ran = 0;
  const auto fault = fault_of({2, 8}, throw_in_the_middle, &ran);
  EXPECT_NE(fault.kernel().find("throw_in_the_middle"), std::string::npos) << fault.kernel();

  Stream stream;
  stream.enqueue({}, "my kernel", [] { throw 1; });
  try {
    stream.synchronize();
    FAIL() << "no fault";
  } catch (const KernelFault& other) {
    EXPECT_EQ(other.kernel(), "my kernel");
    EXPECT_TRUE(contains(other, "no std::exception")) << other.what();
  }
}

TEST(Faults, TheFirstIsReportedOnceAndTheStreamGoesOn) {
  int ran = 0;
  Stream stream;
  launch(stream, {2, 8}, throw_in_the_middle, &ran);
  EXPECT_THROW(stream.synchronize(), KernelFault);
  EXPECT_NO_THROW(stream.synchronize());
  ran = 0;
  launch(stream, {1, 8}, throw_in_the_middle, &ran);  // block 0 alone does not throw
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_EQ(ran, 8);
}

TEST(Faults, WhatWasQueuedBehindAFaultDoesNotRun) {
  int ran = 0, after = 0;
  Stream stream;
  launch(stream, {2, 8}, throw_in_the_middle, &ran);
  for (int i = 0; i < 5; ++i) stream.enqueue({1, 4}, "after", [&] { atomicAdd(&after, 1); });
  EXPECT_THROW(stream.synchronize(), KernelFault);
  EXPECT_EQ(after, 0);
}

TEST(Faults, OtherStreamsDoNotNotice) {
  int ran = 0, other_ran = 0;
  Stream bad, good;
  launch(bad, {2, 8}, throw_in_the_middle, &ran);
  good.enqueue({4, 32}, "good", [&] { atomicAdd(&other_ran, 1); });
  EXPECT_NO_THROW(good.synchronize());
  EXPECT_EQ(other_ran, 128);
  EXPECT_THROW(bad.synchronize(), KernelFault);
}

/// Block 0 waits for block 1 for ever, in one way or the other; block 1 fails.
__global__ void wait_for_a_failed_block(int* flag, int how) {
  if (blockIdx.x == 1) throw std::runtime_error("block 1 gives up");
  if (how == 0) {
    while (atomicAdd(flag, 0) == 0) relax(1'000'000);
  } else if (how == 1) {
    while (atomicAdd(flag, 0) == 0) {
    }
  } else {
    while (atomicAdd(flag, 0) == 0) __nanosleep(1'000);
  }
}

TEST(Faults, BlocksThatWaitForAFailedOneEndToo) {
  for (const int how : {0, 1, 2}) {
    int flag = 0;
    EXPECT_TRUE(contains(fault_of({2, 2}, wait_for_a_failed_block, &flag, how), "block 1 gives up"));
  }
}

TEST(Faults, AnAbandonedBlocksStacksAreReplaced) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(contains(fault_of(
                             {1, 64},
                             +[] {
                               if (threadIdx.x == 63) throw std::runtime_error("last");
                               __syncthreads();
                             }),
                         "last"));
    int count = 0;
    run(
        {1, 64},
        +[](int* out) {
          __syncthreads();
          atomicAdd(out, 1);
        },
        &count);
    EXPECT_EQ(count, 64);
  }
}

// --- Signals. Sanitizers keep them for their own reports.

class Signals : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "under a sanitizer its own report ends the process";
  }
};

__global__ void store_to(int* address) {
  if (blockIdx.x == 1 && threadIdx.x == 3) *address = 1;
}

TEST_F(Signals, AStoreToAnInvalidAddressIsReportedAndTheProcessLives) {
  const auto fault = fault_of({2, 8}, store_to, reinterpret_cast<int*>(0x1234));
  EXPECT_EQ(fault.block().x, 1u);
  EXPECT_EQ(fault.thread().x, 3u);
  EXPECT_TRUE(contains(fault, "0x1234")) << fault.what();
  EXPECT_NE(fault.kernel().find("store_to"), std::string::npos);
}

TEST_F(Signals, EveryWorkerSurvivesThemAgainAndAgain) {
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(contains(fault_of({2, 8}, store_to, reinterpret_cast<int*>(0x1234)), "0x1234"));
  int count = 0;
  run(
      {20, 32}, +[](int* out) { atomicAdd(out, 1); }, &count);
  EXPECT_EQ(count, 640);
}

#if defined(__x86_64__)  // elsewhere the hardware does not trap
__global__ void divide(int* out, int divisor) { *out = 1000 / divisor; }

TEST_F(Signals, ADivisionByZeroIsReported) {
  int out = 0;
  const auto fault = fault_of({}, divide, &out, 0);
  EXPECT_TRUE(contains(fault, sigdescr_np(SIGFPE))) << fault.what();
}
#endif

TEST_F(Signals, AnIllegalInstructionIsReported) {
  EXPECT_TRUE(contains(fault_of(
                           {}, +[] { __builtin_trap(); }),
                       sigdescr_np(SIGILL)));
}

__attribute__((noinline)) int overflow(int depth, char* last) {
  char frame[1024];
  frame[depth % 1024] = last ? *last : 1;
  asm volatile("" : : "r"(frame) : "memory");
  return depth == 1'000'000 ? 0 : overflow(depth + 1, frame) + frame[depth % 1024];
}

__global__ void recurse(int* out) { *out = overflow(0, nullptr); }

TEST_F(Signals, AStackOverflowIsReportedAsOne) {
  int out = 0;
  const auto fault = fault_of({1, 2}, recurse, &out);
  EXPECT_TRUE(contains(fault, "stack of 128 KiB overflowed")) << fault.what();
}

/// As large as a GPU allows, and written from its lowest address upwards: far below the stack's last page.
__global__ void fill_a_large_array(int* out) {
  char large[512 << 10];
  for (std::size_t i = 0; i < sizeof large; ++i) {
    large[i] = static_cast<char>(i);
    asm volatile("" : : "r"(large) : "memory");
  }
  *out = large[17];
}

TEST_F(Signals, ALocalArrayThatIsLargerThanTheStackIsReportedAsAnOverflow) {
  int out = 0;
  const auto fault = fault_of({1, 2}, fill_a_large_array, &out);
  EXPECT_TRUE(contains(fault, "stack of 128 KiB overflowed")) << fault.what();
}

TEST_F(Signals, OutsideOfKernelsTheyStillEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        run(
            {}, +[] {});  // the handlers are in place
        raise(SIGSEGV);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace cpu_device::test
