#include "tests/support/error_of.hpp"
#include "tests/unit/cpu_device/run.hpp"

#include <atomic>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

namespace cpu_device::test {
namespace {

struct Seen {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
  int calls;
};

__global__ void look(Seen* seen) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  Seen& mine = seen[block * blockDim.x * blockDim.y * blockDim.z + thread];
  mine = {threadIdx, blockIdx, blockDim, gridDim, mine.calls + 1};
}

TEST(Launch, EveryThreadRunsOnceAndKnowsWhereItIs) {
  const dim3 grid(3, 2, 2), block(5, 3, 2);
  std::vector<Seen> seen(12 * 30);
  run({grid, block}, look, seen.data());
  for (unsigned i = 0; i < seen.size(); ++i) {
    const Seen& one = seen[i];
    ASSERT_EQ(one.calls, 1) << i;
    EXPECT_EQ((one.block.z * 2 + one.block.y) * 3 + one.block.x, i / 30);
    EXPECT_EQ((one.thread.z * 3 + one.thread.y) * 5 + one.thread.x, i % 30);
    EXPECT_EQ(one.block_dim.x * 100 + one.block_dim.y * 10 + one.block_dim.z, 532u);
    EXPECT_EQ(one.grid_dim.x * 100 + one.grid_dim.y * 10 + one.grid_dim.z, 322u);
  }
}

struct Wide {
  double value;
};

__global__ void keep_arguments(std::int64_t* out, std::int64_t wide, float narrowed, const int* pointer, Wide wrapped) {
  out[0] = wide;
  out[1] = static_cast<std::int64_t>(narrowed * 4);
  out[2] = *pointer;
  out[3] = static_cast<std::int64_t>(wrapped.value);
}

TEST(Launch, ArgumentsAreConvertedAndCopiedAtTheCall) {
  std::vector<std::int64_t> out(4);
  int pointed_at = 7;
  short small = -3;
  double real = 2.25;
  Wide wrapped{9.0};
  Stream stream;
  std::atomic<bool> changed{false};
  stream.enqueue({}, "wait for the changes", [&] {
    while (!changed) __nanosleep(1'000);
  });
  launch(stream, {}, keep_arguments, out.data(), small, real, &pointed_at, wrapped);
  small = 5;
  real = 0;
  wrapped.value = 0;
  changed = true;
  stream.synchronize();
  EXPECT_EQ(out, (std::vector<std::int64_t>{-3, 9, 7, 9}));
}

__global__ void count_down(int* left, int parameter) {
  while (parameter > 0) --parameter;  // every thread has its own copy
  atomicAdd(left, parameter - 1);
}

TEST(Launch, EveryThreadHasItsOwnCopyOfTheArguments) {
  int left = 0;
  run({4, 16}, count_down, &left, 3);
  EXPECT_EQ(left, -64);
}

__global__ void reverse_in_shared(int* out) {
  auto* shared = static_cast<int*>(dynamic_shared());
  if (reinterpret_cast<std::uintptr_t>(shared) % 128 != 0) out[blockIdx.x * blockDim.x] = -1000;
  shared[threadIdx.x] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] += shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Launch, DynamicSharedMemoryIsTheBlocksOwnAndAligned) {
  std::vector<int> out(8 * 100);
  run({8, 100, 100 * sizeof(int)}, reverse_in_shared, out.data());
  for (int i = 0; i < 800; ++i) EXPECT_EQ(out[i], i / 100 * 100 + 99 - i % 100);
}

__global__ void touch_last_shared_byte(int* ok) {
  static_cast<char*>(dynamic_shared())[kSharedBytesMax - 1] = 1;
  *ok = 1;
}

TEST(Launch, TheLargestShapesAreAccepted) {
  int ok = 0, threads = 0;
  run({1, 1, kSharedBytesMax}, touch_last_shared_byte, &ok);
  EXPECT_EQ(ok, 1);
  run(
      {1, {16, 1, 64}}, +[](int* count) { atomicAdd(count, 1); }, &threads);
  EXPECT_EQ(threads, 1024);
}

std::string refusal(const LaunchShape& shape) {
  Stream stream;
  return gpusock::test::error_of<std::invalid_argument>(
      [&] { stream.enqueue(shape, "never", [] { FAIL() << "a kernel of an impossible shape ran"; }); });
}

TEST(Launch, ImpossibleShapesAreRefusedAndTheLimitIsNamed) {
  EXPECT_NE(refusal({dim3(1), dim3(1025)}).find("(1024,1024,64)"), std::string::npos);
  EXPECT_NE(refusal({dim3(1), dim3(1, 1, 65)}).find("(1024,1024,64)"), std::string::npos);
  EXPECT_NE(refusal({dim3(1), dim3(513, 2)}).find("1024 threads in all; asked for (513,2,1)"), std::string::npos);
  EXPECT_NE(refusal({dim3(1), dim3(0)}).find("at least one thread"), std::string::npos);
  EXPECT_NE(refusal({dim3(0), dim3(1)}).find("at least one block"), std::string::npos);
  EXPECT_NE(refusal({dim3(1, 65536), dim3(1)}).find("65535"), std::string::npos);
  EXPECT_NE(refusal({dim3(1u << 31), dim3(1)}).find("2147483647"), std::string::npos);
  EXPECT_NE(refusal({dim3(1), dim3(1), kSharedBytesMax + 1}).find("232448 bytes"), std::string::npos);
}

TEST(Launch, KernelsKnowThatTheyAreKernels) {
  EXPECT_FALSE(in_kernel());
  EXPECT_EQ(dynamic_shared(), nullptr);
  int inside = 0;
  run(
      {}, +[](int* out) { *out = in_kernel(); }, &inside);
  EXPECT_EQ(inside, 1);
}

TEST(Launch, SharedVariablesDifferBetweenBlocksThatRunAtTheSameTime) {
  std::vector<void*> addresses(2);
  int arrived = 0;
  run(
      {2, 1},
      +[](void** out, int* count) {
        __shared__ int variable;
        out[blockIdx.x] = &variable;
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) != 2) relax(10'000);
      },
      addresses.data(), &arrived);
  EXPECT_NE(addresses[0], addresses[1]);
}

}  // namespace
}  // namespace cpu_device::test
