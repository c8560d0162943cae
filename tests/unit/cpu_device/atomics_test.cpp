#include "tests/unit/cpu_device/run.hpp"

#include <thread>
#include <vector>

namespace cpu_device::test {
namespace {

template <class T>
__global__ void add_one(T* counter, int times) {
  for (int i = 0; i < times; ++i) atomicAdd(counter, T(1));
}

template <class T>
void check_sum() {
  T counter = 0;
  Stream stream;
  launch(stream, {8, 64}, add_one<T>, &counter, 50);
  std::thread host([&] { add_one<T>(&counter, 1000); });  // host threads reach the same memory
  host.join();
  stream.synchronize();
  EXPECT_EQ(counter, T(8 * 64 * 50 + 1000));
}

TEST(Atomics, AddLosesNothingBetweenBlocksAndHostThreads) {
  check_sum<int>();
  check_sum<unsigned>();
  check_sum<unsigned long long>();
  check_sum<float>();
  check_sum<double>();
}

template <class T>
__global__ void all_operations(T* cells, T* old) {
  old[0] = atomicAdd(&cells[0], T(5));
  old[1] = atomicExch(&cells[1], T(6));
  old[2] = atomicMin(&cells[2], T(3));
  old[3] = atomicMax(&cells[3], T(300));
  old[4] = atomicAnd(&cells[4], T(6));
  old[5] = atomicOr(&cells[5], T(3));
  old[6] = atomicXor(&cells[6], T(255));
  old[7] = atomicCAS(&cells[7], T(100), T(1));
  old[8] = atomicCAS(&cells[8], T(99), T(1));
  old[9] = atomicAdd_block(&cells[9], T(1)) + atomicAdd_system(&cells[9], T(1));
}

template <class T>
void check_operations() {
  std::vector<T> cells(10, 100), old(10);
  run({}, all_operations<T>, cells.data(), old.data());
  EXPECT_EQ(cells, (std::vector<T>{105, 6, 3, 300, 100 & 6, 100 | 3, 100 ^ 255, 1, 100, 102}));
  old[9] -= 101;
  EXPECT_EQ(old, std::vector<T>(10, 100));
}

TEST(Atomics, EachReturnsTheOldValueAndLeavesTheNewOne) {
  check_operations<int>();
  check_operations<unsigned>();
  check_operations<unsigned long long>();
}

TEST(Atomics, IncrementAndDecrementWrapAtTheirLimit) {
  unsigned cells[4] = {3, 4, 0, 9};
  run(
      {},
      +[](unsigned* at) {
        atomicInc(&at[0], 4);
        atomicInc(&at[1], 4);
        atomicDec(&at[2], 7);
        atomicDec(&at[3], 7);
      },
      &cells[0]);
  EXPECT_EQ(cells[0], 4u);
  EXPECT_EQ(cells[1], 0u);
  EXPECT_EQ(cells[2], 7u);
  EXPECT_EQ(cells[3], 7u);
}

__global__ void minmax(int* lowest, int* highest) {
  const int value = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) - 500;
  atomicMin(lowest, value);
  atomicMax(highest, value);
}

TEST(Atomics, MinimumAndMaximumOfManyBlocks) {
  int lowest = 0, highest = 0;
  run({10, 128}, minmax, &lowest, &highest);
  EXPECT_EQ(lowest, -500);
  EXPECT_EQ(highest, 779);
}

/// A spin lock as many kernels have it: no call but the atomics themselves.
__global__ void locked_increment(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  ++*counter;
  atomicExch(lock, 0);
}

TEST(Atomics, SpinLocksMakeProgressWithinAndBetweenBlocks) {
  int lock = 0, counter = 0;
  run({6, 64}, locked_increment, &lock, &counter);
  EXPECT_EQ(counter, 6 * 64);
}

/// The thread that is waited for comes last, and holds no lock: only a yield inside of the atomics lets it run.
__global__ void wait_for_last(int* flag) {
  if (threadIdx.x == blockDim.x - 1) {
    atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) {
    }
  }
}

TEST(Atomics, AThreadThatSpinsOnThemLetsOthersOfItsBlockRun) {
  int flag = 0;
  run({1, 300}, wait_for_last, &flag);
  EXPECT_EQ(flag, 1);
}

}  // namespace
}  // namespace cpu_device::test
