#include "tests/unit/cpu_device/run.hpp"

#include <memory>
#include <thread>
#include <vector>

namespace cpu_device::test {
namespace {

__global__ void append(std::vector<int>* list, int value) {
  if (blockIdx.x == 0 && threadIdx.x == 0) list->push_back(value);
}

TEST(Streams, LaunchesOfOneStreamRunInOrder) {
  std::vector<int> list;
  Stream stream;
  for (int i = 0; i < 2000; ++i) launch(stream, {1 + i % 3u, 1 + i % 5u}, append, &list, i);
  stream.synchronize();
  ASSERT_EQ(list.size(), 2000u);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(list[i], i);
}

TEST(Streams, AGridStartsAfterEveryBlockOfTheOneBefore) {
  std::vector<int> counts(50);
  Stream stream;
  for (int i = 0; i < 50; ++i) {
    stream.enqueue({16, 8}, "count", [&counts, i] {
      if (i > 0 && atomicAdd(&counts[i - 1], 0) != 128) atomicAdd(&counts[i], 1000);
      atomicAdd(&counts[i], 1);
    });
  }
  stream.synchronize();
  for (const int count : counts) EXPECT_EQ(count, 128);
}

TEST(Streams, EnqueueReturnsBeforeTheKernelEnds) {
  int go = 0;
  Stream stream;
  stream.enqueue({}, "wait for the host", [&] {
    while (atomicAdd(&go, 0) == 0) relax(50'000);
  });
  EXPECT_FALSE(stream.idle());
  atomicExch(&go, 1);
  stream.synchronize();
  EXPECT_TRUE(stream.idle());
}

TEST(Streams, DifferentStreamsRunConcurrently) {
  int turn = 0;
  Stream even, odd;
  const auto play = [&turn](int mine) {  // 200 turns, each waiting for the other
    for (int i = mine; i < 200; i += 2) {
      const auto began_ns = clock_ns();
      while (atomicAdd(&turn, 0) != i) relax(clock_ns() - began_ns);
      atomicAdd(&turn, 1);
    }
  };
  even.enqueue({}, "even", [&] { play(0); });
  odd.enqueue({}, "odd", [&] { play(1); });
  even.synchronize();
  odd.synchronize();
  EXPECT_EQ(turn, 200);
}

TEST(Streams, SeveralHostThreadsLaunchAtTheSameTime) {
  int count = 0;
  Stream shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Stream own;
      for (int i = 0; i < 100; ++i) {
        own.enqueue({2, 3}, "own", [&] { atomicAdd(&count, 1); });
        shared.enqueue({1, 2}, "shared", [&] { atomicAdd(&count, 1); });
        if (i % 10 == 0) own.synchronize();
      }
      own.synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  shared.synchronize();
  EXPECT_EQ(count, 4 * 100 * 8);
}

TEST(Streams, TheDestructorWaits) {
  int count = 0;
  {
    Stream stream;
    for (int i = 0; i < 20; ++i) stream.enqueue({4, 4}, "count", [&] { atomicAdd(&count, 1); });
  }
  EXPECT_EQ(count, 320);
}

TEST(Streams, WhatAKernelHeldIsGoneAfterSynchronize) {
  auto held = std::make_shared<int>(0);
  Stream stream;
  stream.enqueue({2, 2}, "hold", [held] {});
  stream.synchronize();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Streams, AKernelMayLaunchButNotWait) {
  int ran = 0;
  Stream stream;
  stream.enqueue({}, "launch", [&] { stream.enqueue({1, 2}, "child", [&] { atomicAdd(&ran, 1); }); });
  while (!stream.idle()) std::this_thread::yield();
  stream.synchronize();
  EXPECT_EQ(ran, 2);
  stream.enqueue({}, "wait", [&] { stream.synchronize(); });
  EXPECT_THROW(stream.synchronize(), KernelFault);
}

TEST(Streams, WritesOfAGridAreVisibleAfterSynchronize) {
  std::vector<unsigned> out(4096);
  Stream stream;
  for (unsigned round = 1; round < 20; ++round) {
    stream.enqueue({32, 128}, "write", [&] { out[blockIdx.x * blockDim.x + threadIdx.x] += round; });
    stream.synchronize();
    ASSERT_EQ(out.front(), round * (round + 1) / 2);
    ASSERT_EQ(out.back(), round * (round + 1) / 2);
  }
}

}  // namespace
}  // namespace cpu_device::test
