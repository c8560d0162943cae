// The double itself: as strict as CUDA is, and it says who waits for whom.
#include "tests/unit/cuda/fixture.hpp"

namespace gpusock::cuda_test {
namespace {

class Double : public testing::Test {
 protected:
  Context context{small_options()};
  Stream stream{context};
  Mapped<std::uint64_t> word{context, 2};

  /// Makes a raw call while a kernel waits for its end, which is a hang; returns who waited for whom.
  template <class Call>
  std::string hang_of(Call call) {
    HangExpected hang([this] { raise(word[0]); });
    launch(context, {.stream = &stream}, wait_for<0>, word.data());
    call();
    stream.synchronize();
    word[0] = 0;
    return hang.text();
  }
};

TEST_F(Double, WhatMayWaitForKernelsWaitsAndIsNamedWithTheKernel) {
  void* device = nullptr;
  void* pinned = nullptr;
  alignas(4096) static char page[4096];
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"cudaMalloc", [&] { EXPECT_EQ(cudaMalloc(&device, 100), cudaSuccess); }},
      {"cudaHostAlloc", [&] { EXPECT_EQ(cudaHostAlloc(&pinned, 100, 0), cudaSuccess); }},
      {"cudaHostRegister", [&] { EXPECT_EQ(cudaHostRegister(page, sizeof page, 0), cudaSuccess); }},
      {"cudaHostUnregister", [&] { EXPECT_EQ(cudaHostUnregister(page), cudaSuccess); }},
      {"cudaFreeHost", [&] { EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess); }},
      {"cudaFree", [&] { EXPECT_EQ(cudaFree(device), cudaSuccess); }},
      {"cudaDeviceSetLimit",
       [&] { EXPECT_EQ(cudaDeviceSetLimit(cudaLimitStackSize, cuda_double::stack_bytes() + 1), cudaSuccess); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string hang = hang_of(call);
    EXPECT_NE(hang.find("  " + name), std::string::npos) << hang;
    EXPECT_NE(hang.find("waits for void gpusock::cuda_test::wait_for<0>"), std::string::npos) << hang;
  }
}

TEST_F(Double, OtherCallsWaitForTheDriverMeanwhile) {
  HangExpected hang([this] { raise(word[0]); }, std::chrono::milliseconds(0));  // the default, until both wait
  launch(context, {.stream = &stream}, wait_for<0>, word.data());
  void* memory = nullptr;
  std::thread allocates([&] { cudaMalloc(&memory, 1); });
  cuda_double::await_waiting_call("cudaMalloc");
  std::thread asks([] {
    int gpu = 0;
    cudaGetDevice(&gpu);
  });
  cuda_double::await_call_that_waits_for("cudaMalloc");
  cuda_double::set_hang_limit(std::chrono::milliseconds(20));
  allocates.join();
  asks.join();
  stream.synchronize();
  cudaFree(memory);
  EXPECT_NE(hang.text().find("  cudaMalloc ("), std::string::npos) << hang.text();
  EXPECT_NE(hang.text().find(") waits for cudaMalloc ("), std::string::npos) << hang.text();
}

TEST_F(Double, CopiesBetweenTheWrongKindsOfMemoryFail) {
  DeviceBuffer<int> device(context, 10);
  Mapped<int> mapped(context, 10);
  int host[10];
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpy(to, from, bytes, kind);
    cudaGetLastError();
    return error;
  };
  EXPECT_EQ(copy(device.data(), host, 40, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(device.data(), mapped.data(), 40, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(device.data(), host, 44, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device.data() + 5, host, 24, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host, device.data(), 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(mapped.data(), host, 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host, mapped.data(), 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(mapped.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(device.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(mapped.data(), 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
}

TEST_F(Double, TheNthCallFailsOnce) {
  int gpu = 0;
  cuda_double::fail_call(2);
  EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&gpu), cudaErrorUnknown);
  EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
  EXPECT_EQ(cuda_double::failed_call(), "cudaGetDevice");
  EXPECT_EQ(cuda_double::calls_made(), 3u);
  cuda_double::fail_call(0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Double, ALaunchThatWaitsForItsKernelIsNamed) {
  cuda_double::set_launches_block(true);
  HangExpected hang([this] { raise(word[0]); });
  launch(context, {.stream = &stream}, wait_for<0>, word.data());
  EXPECT_TRUE(stream.idle());
  cuda_double::set_launches_block(false);
  EXPECT_NE(hang.text().find("  cudaLaunchKernel ("), std::string::npos) << hang.text();
  EXPECT_NE(hang.text().find("wait_for<0>"), std::string::npos) << hang.text();
}

/// Each block waits until all have come, or the host gives up.
__global__ void meet(std::uint64_t* words) {
  if (threadIdx.x != 0) return;
  Word(words[1]).fetch_add(1, ringbuf::kRelease);
  while (Word(words[1]).load(ringbuf::kAcquire) < gridDim.x && Word(words[0]).load(ringbuf::kAcquire) == 0)
    __nanosleep(1'000);
}

TEST_F(Double, BlocksThatWaitForThoseThatCannotBecomeResidentAreNamed) {
  HangExpected hang([this] { raise(word[0]); });
  launch(context, {.grid = cuda_double::kResidentBlocksMax, .stream = &stream}, meet, word.data());
  stream.synchronize();
  EXPECT_EQ(hang.text(), "");
  word[1] = 0;
  launch(context, {.grid = cuda_double::kResidentBlocksMax + 3, .stream = &stream}, meet, word.data());
  stream.synchronize();
  EXPECT_EQ(word[1], cuda_double::kResidentBlocksMax + 3);
  EXPECT_NE(hang.text().find("3 blocks wait to become resident, as 128 are, of which none ends: "), std::string::npos)
      << hang.text();
  EXPECT_NE(hang.text().find("meet"), std::string::npos) << hang.text();
}

TEST_F(Double, ALaunchThatFindsNoRoomInItsQueueWaitsAndIsNamed) {
  HangExpected hang([this] { raise(word[0]); });
  launch(context, {.stream = &stream}, wait_for<0>, word.data());
  for (std::uint64_t i = 0; i <= cuda_double::kQueuedMax; ++i) {
    if (i < cuda_double::kQueuedMax) {
      EXPECT_EQ(hang.text(), "") << i;
    }
    launch(context, {.stream = &stream}, set<0>, &word[1], i);
  }
  stream.synchronize();
  EXPECT_EQ(word[1], cuda_double::kQueuedMax);
  EXPECT_NE(hang.text().find("room in its hardware queue, where 1024 wait for"), std::string::npos) << hang.text();
  EXPECT_NE(hang.text().find("wait_for<0>"), std::string::npos) << hang.text();
}

/// Raw streams, made in turn until two share a queue.
TEST_F(Double, StreamsBeyondTheHardwareQueuesShareThemAndTheHangIsNamed) {
  std::vector<cudaStream_t> streams(static_cast<std::size_t>(cuda_double::hardware_queues()) + 1);
  for (cudaStream_t& each : streams) ASSERT_EQ(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), cudaSuccess);
  HangExpected hang([this] { raise(word[0]); });
  std::uint64_t* const waits = &word[0];
  std::uint64_t* const sets = &word[1];
  std::uint64_t value = 1;
  void* wait_arguments[] = {const_cast<std::uint64_t**>(&waits)};
  void* set_arguments[] = {const_cast<std::uint64_t**>(&sets), &value};
  EXPECT_EQ(cudaLaunchKernel(cuda_double::symbol_of(wait_for<0>), 1, 1, wait_arguments, 0, streams.front()),
            cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(cuda_double::symbol_of(set<0>), 1, 1, set_arguments, 0, streams.back()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams.back()), cudaSuccess);
  EXPECT_EQ(word[1], 1u);
  EXPECT_NE(hang.text().find("set<0>"), std::string::npos) << hang.text();
  EXPECT_NE(hang.text().find("their streams share hardware queue"), std::string::npos) << hang.text();
  for (cudaStream_t each : streams) EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess);
}

}  // namespace
}  // namespace gpusock::cuda_test
