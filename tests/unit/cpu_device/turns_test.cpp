// Blocks that share OS threads (LaunchShape::blocks_share_threads).
#include "tests/unit/cpu_device/run.hpp"

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace cpu_device::test {
namespace {

LaunchShape sharing(unsigned blocks, unsigned threads = 1) {
  return {.grid = blocks, .block = threads, .blocks_share_threads = true};
}

void wait_for(unsigned* word, unsigned value, Spin spin) {
  const auto began_ns = clock_ns();
  while (atomicAdd(word, 0u) < value) {
    if (spin == Spin::relax) relax(clock_ns() - began_ns);
    if (spin == Spin::nanosleep) __nanosleep(100);
  }
}

/// Blocks wait for one another again and again. Each keeps a number in memory that its threads share.
__global__ void keep_a_number(unsigned* arrived, int* wrong, Spin spin, unsigned rounds) {
  auto& number = block_shared<unsigned[32]>([] {});
  for (unsigned round = 1; round <= rounds; ++round) {
    number[threadIdx.x] = 1000 * round + blockIdx.x * blockDim.x + threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(arrived, 1u);
      wait_for(arrived, round * gridDim.x, spin);
    }
    __syncthreads();
    for (unsigned other = 0; other < blockDim.x; ++other) {
      if (number[other] != 1000 * round + blockIdx.x * blockDim.x + other) atomicAdd(wrong, 1);
    }
    __syncthreads();
  }
}

class Turns : public testing::TestWithParam<Spin> {};

TEST_P(Turns, BlocksWaitForOneAnotherAndKeepWhatTheirThreadsShare) {
  for (const unsigned threads : {1u, 5u}) {
    unsigned arrived = 0;
    int wrong = 0;
    const unsigned blocks = kSanitized && GetParam() == Spin::atomics ? 8 : 40;
    run(sharing(blocks, threads), keep_a_number, &arrived, &wrong, GetParam(), 20u);
    EXPECT_EQ(arrived, 20 * blocks);
    EXPECT_EQ(wrong, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Spins, Turns, testing::Values(Spin::relax, Spin::nanosleep, Spin::atomics));

__global__ void meet_all(unsigned* arrived, unsigned blocks) {
  atomicAdd(arrived, 1u);
  wait_for(arrived, blocks, Spin::relax);
}

TEST(Turns, WaitingBlocksShareAFewThreads) {
  if (kThreadSanitized) GTEST_SKIP() << "each block has a thread, so that races are seen";
  // In a process of its own: what other tests have started stays.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsigned arrived = 0;
        Stream first;
        Stream second;  // of different launches, too
        launch(first, sharing(100), meet_all, &arrived, 200u);
        launch(second, sharing(100), meet_all, &arrived, 200u);
        first.synchronize();
        second.synchronize();
        // One for each processor, one more for each 2 ms in which no block begins to wait, and the monitor.
        std::exit(os_threads() <= std::thread::hardware_concurrency() + 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Turns, BlocksThatDoNotShareHaveAThreadOfTheirOwn) {
  unsigned arrived = 0;
  Stream first, second;
  launch(first, sharing(10), meet_all, &arrived, 20u);
  launch(
      second, {.grid = 10},
      +[](unsigned* count) {
        __shared__ unsigned number;
        number = blockIdx.x;
        meet_all(count, 20);
        if (number != blockIdx.x) throw std::runtime_error("another block has changed the number");
      },
      &arrived);
  first.synchronize();
  second.synchronize();
}

TEST(Turns, ABlockThatFailsEndsItsGridAndNoOther) {
  unsigned go = 0;
  std::vector<unsigned> ended(8);
  Stream good, bad;
  launch(
      good, sharing(8),
      +[](unsigned* word, unsigned* ends) {
        wait_for(word, 1, Spin::relax);
        ends[blockIdx.x] = 1;
      },
      &go, ended.data());
  for (int i = 0; i < 20; ++i) {
    unsigned never = 0;
    launch(
        bad, sharing(8, 3),
        +[](unsigned* word) {
          if (blockIdx.x == 5 && threadIdx.x == 1) throw std::runtime_error("block 5 gives up");
          __syncthreads();
          wait_for(word, 1, blockIdx.x % 2 == 0 ? Spin::relax : Spin::atomics);
        },
        &never);
    EXPECT_THROW(bad.synchronize(), KernelFault);
  }
  atomicExch(&go, 1u);
  good.synchronize();
  EXPECT_EQ(ended, std::vector<unsigned>(8, 1));
}

TEST(Turns, AFaultLeavesTheOtherBlocksOfItsThreadAlone) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer its own report ends the process";
  unsigned arrived = 0;
  Stream good, bad;
  launch(good, sharing(8, 2), meet_all, &arrived, 17u);
  launch(
      bad, sharing(4), +[] { *static_cast<volatile int*>(nullptr) = 1; });
  EXPECT_THROW(bad.synchronize(), KernelFault);
  atomicAdd(&arrived, 1u);
  good.synchronize();
  EXPECT_EQ(arrived, 17u);
}

TEST(Turns, AGridOfManyBlocksRunsBesideWaitingOnes) {
  unsigned go = 0, ran = 0;
  Stream waiting, working;
  launch(
      waiting, sharing(16), +[](unsigned* word) { wait_for(word, 1, Spin::relax); }, &go);
  for (int i = 0; i < 20; ++i) {
    launch(
        working, sharing(300, 4), +[](unsigned* count) { atomicAdd(count, 1u); }, &ran);
  }
  working.synchronize();
  EXPECT_EQ(ran, 20u * 300 * 4);
  atomicExch(&go, 1u);
  waiting.synchronize();
}

}  // namespace
}  // namespace cpu_device::test
