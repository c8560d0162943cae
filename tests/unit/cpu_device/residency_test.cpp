#include "tests/unit/cpu_device/run.hpp"

#include <thread>
#include <vector>

namespace cpu_device::test {
namespace {

/// The textbook grid barrier: works only where all blocks are resident together.
__global__ void grid_barrier(unsigned* arrived, int* wrong, int spin, unsigned rounds) {
  for (unsigned round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(arrived, 1u);
      const auto began_ns = clock_ns();
      while (atomicAdd(arrived, 0u) < round * gridDim.x) {
        if (spin == static_cast<int>(Spin::relax)) relax(clock_ns() - began_ns);
        if (spin == static_cast<int>(Spin::nanosleep)) __nanosleep(100);
      }
    }
    __syncthreads();
    if (atomicAdd(arrived, 0u) < round * gridDim.x) atomicAdd(wrong, 1);
  }
}

void check_grid_barrier(unsigned blocks, Spin spin) {
  unsigned arrived = 0;
  int wrong = 0;
  run({blocks, 4}, grid_barrier, &arrived, &wrong, static_cast<int>(spin), 3);
  EXPECT_EQ(arrived, 3 * blocks);
  EXPECT_EQ(wrong, 0);
}

TEST(Residency, BlocksThatWaitForOneAnotherInRelax) { check_grid_barrier(64, Spin::relax); }
TEST(Residency, BlocksThatWaitForOneAnotherInNanosleep) { check_grid_barrier(64, Spin::nanosleep); }
TEST(Residency, BlocksThatWaitForOneAnotherInNothingButAtomics) {
  check_grid_barrier(kSanitized ? 8 : 24, Spin::atomics);
}

__global__ void meet(unsigned* arrived) {
  atomicAdd(arrived, 1u);
  const auto began_ns = clock_ns();
  while (atomicAdd(arrived, 0u) < gridDim.x) relax(clock_ns() - began_ns);
}

TEST(Residency, AsManyBlocksAsAreDocumentedFit) {
  if (kSanitized) GTEST_SKIP() << "a thousand OS threads are too much for a sanitizer's tables";
  unsigned arrived = 0;
  run({kResidentBlocksMax, 1}, meet, &arrived);
  EXPECT_EQ(arrived, kResidentBlocksMax);
}

TEST(Residency, BlocksOfTwoGridsCanWaitForOneAnother) {
  unsigned flags[2] = {0, 0};
  Stream first, second;
  const auto body = [&flags](int mine) {
    atomicExch(&flags[mine], 1u);
    const auto began_ns = clock_ns();
    while (atomicAdd(&flags[1 - mine], 0u) == 0) relax(clock_ns() - began_ns);
  };
  first.enqueue({1, 1}, "first", [&] { body(0); });
  second.enqueue({1, 1}, "second", [&] { body(1); });
  first.synchronize();
  second.synchronize();
}

__global__ void compute(unsigned long long* sum, unsigned steps) {
  unsigned long long state = blockIdx.x + 1;
  for (unsigned i = 0; i < steps; ++i) state = state * 6364136223846793005ull + 1442695040888963407ull;
  if (threadIdx.x == 0) atomicAdd(sum, state | 1);
}

TEST(Residency, AComputeGridDoesNotStartAThreadPerBlock) {
  // In a process of its own: what other tests have started stays.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsigned long long sum = 0;
        run({500, 32}, compute, &sum, 20'000u);
        const std::size_t expected = std::thread::hardware_concurrency() + 64;
        std::exit(os_threads() <= expected ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Residency, WorkersAreUsedAgain) {
  unsigned long long sum = 0;
  run({64, 1}, compute, &sum, 10u);
  unsigned arrived = 0;
  run({16, 1}, meet, &arrived);
  const std::size_t before = os_threads();
  for (int i = 0; i < 200; ++i) {
    arrived = 0;
    run({16, 1}, meet, &arrived);
  }
  EXPECT_LE(os_threads(), before + 1);  // the monitor may have started meanwhile
}

}  // namespace
}  // namespace cpu_device::test
