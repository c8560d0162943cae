#include "tests/unit/cpu_device/run.hpp"

#include <vector>

namespace cpu_device::test {
namespace {

constexpr int kRounds = 20;

/// Every thread passes a value on to its neighbour, over and over: any thread that a barrier lets go early breaks the
/// chain.
__global__ void pass_round(int* out) {
  __shared__ int slots[1024];
  const unsigned n = blockDim.x;
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round < kRounds; ++round) {
    slots[threadIdx.x] = value;
    __syncthreads();
    value = slots[(threadIdx.x + 1) % n];
    __syncthreads();
  }
  out[blockIdx.x * n + threadIdx.x] = value;
}

TEST(BlockBarrier, NobodyPassesBeforeTheLastHasCome) {
  // ThreadSanitizer keeps a clock of all threads for each of them.
  for (const unsigned threads : {1u, 2u, 31u, 33u, kSanitized ? 128u : 256u, kSanitized ? 129u : 1024u}) {
    std::vector<int> out(3 * threads);
    run({3, threads}, pass_round, out.data());
    for (unsigned i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], (i % threads + kRounds) % threads) << threads << " threads";
  }
}

/// Thread i leaves after i rounds.
__global__ void leave_one_by_one(int* rounds_seen) {
  for (unsigned round = 0; round < threadIdx.x; ++round) {
    __syncthreads();
    ++rounds_seen[threadIdx.x];
  }
}

TEST(BlockBarrier, ThreadsThatHaveEndedDoNotCount) {
  std::vector<int> rounds(100);
  run({1, 100}, leave_one_by_one, rounds.data());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rounds[i], i);
}

/// The reverse: those that come last to the barrier end instead.
__global__ void last_ones_leave(int* passed) {
  if (threadIdx.x >= 10) return;
  __syncthreads();
  atomicAdd(passed, 1);
}

TEST(BlockBarrier, IsCompletedByThreadsThatEnd) {
  int passed = 0;
  run({4, 64}, last_ones_leave, &passed);
  EXPECT_EQ(passed, 40);
}

__global__ void vote_in_barrier(int* out) {
  const unsigned i = threadIdx.x;
  int* mine = out + i * 6;
  mine[0] = __syncthreads_count(i % 3 == 0);
  mine[1] = __syncthreads_and(i < 100);
  mine[2] = __syncthreads_and(i < 99);
  mine[3] = __syncthreads_or(i == 57);
  mine[4] = __syncthreads_or(i == 100);
  mine[5] = __syncthreads_count(1);
}

TEST(BlockBarrier, CountsAndVotes) {
  std::vector<int> out(600);
  run({1, 100}, vote_in_barrier, out.data());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(std::vector<int>(&out[i * 6], &out[i * 6] + 6), (std::vector<int>{34, 1, 0, 1, 0, 100}));
  }
}

__global__ void vote_after_exits(int* out) {
  if (threadIdx.x % 2) return;
  out[threadIdx.x * 2] = __syncthreads_count(1);
  out[threadIdx.x * 2 + 1] = __syncthreads_and(1);
}

TEST(BlockBarrier, VotesAreOfThreadsThatHaveNotEnded) {
  std::vector<int> out(20);
  run({1, 10}, vote_after_exits, out.data());
  for (int i = 0; i < 10; i += 2) {
    EXPECT_EQ(out[i * 2], 5);
    EXPECT_EQ(out[i * 2 + 1], 1);
  }
}

/// Barriers at different lines of the source are one barrier, as on hardware.
__global__ void meet_from_two_branches(int* out) {
  __shared__ int value;
  if (threadIdx.x == 0) {
    value = 42;
    __syncthreads();
  } else {
    __syncthreads();
    out[threadIdx.x] = value;
  }
}

TEST(BlockBarrier, CanBeReachedFromSeveralBranches) {
  std::vector<int> out(64);
  run({1, 64}, meet_from_two_branches, out.data());
  for (int i = 1; i < 64; ++i) EXPECT_EQ(out[i], 42);
}

TEST(BlockBarrier, ThatNoThreadCanCompleteIsReported) {
  const auto fault = fault_of(
      {2, 8}, +[] {
        if (threadIdx.x < 3) {
          __syncthreads();
        } else {
          __syncwarp(0xff);
        }
      });
  const std::string what = fault.what();
  EXPECT_NE(what.find("deadlock"), std::string::npos) << what;
  EXPECT_NE(what.find("3 at __syncthreads: (0,0,0), (1,0,0), (2,0,0)"), std::string::npos) << what;
  EXPECT_NE(what.find("5 at a warp operation: (3,0,0), (4,0,0), (5,0,0), (6,0,0), (7,0,0)"), std::string::npos) << what;
}

TEST(BlockBarrier, DeadlockReportsNameOnlyTheFirstOfManyThreads) {
  const std::string what = fault_of(
                               {1, 512},
                               +[] {
                                 if (threadIdx.x % 2) __syncwarp();
                                 __syncthreads();
                               })
                               .what();
  EXPECT_NE(what.find("256 at a warp operation: (1,0,0), "), std::string::npos) << what;
  EXPECT_NE(what.find(", ..."), std::string::npos) << what;
  EXPECT_LT(what.size(), 500u);
}

}  // namespace
}  // namespace cpu_device::test
