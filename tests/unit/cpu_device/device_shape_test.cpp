#include "cpu_device/device_memory.hpp"
#include "cpu_device/device_shape.hpp"

#include "tests/unit/cpu_device/run.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace cpu_device::test {
namespace {

constexpr std::uint64_t kYearsNs = 5ull * 365 * 24 * 3600 * 1'000'000'000;

class DeviceShapes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    DeviceShape shape;
    shape.hardware_queues = 2;
    shape.resident_blocks_max = 4;
    shape.kernel_clock_ahead_ns = kYearsNs;
    shape.kernel_clock_step_ns = 1000;
    shape.guarded_device_memory = true;
    shape.wait_max_ns = 30'000'000'000;
    set_device_shape(shape);
  }
};

void wait_for(int& word) {
  while (atomicAdd(&word, 0) == 0) relax(50'000);
}

TEST_F(DeviceShapes, StreamsBeyondTheHardwareQueuesShareThemInOrder) {
  Stream first, second, third;  // the third has the first one's queue
  int go = 0, first_ended = 0, seen_by_third = -1;
  first.enqueue({}, "first", [&] {
    wait_for(go);
    atomicExch(&first_ended, 1);
  });
  third.enqueue({}, "third", [&] { seen_by_third = atomicAdd(&first_ended, 0); });
  second.enqueue({}, "second", [&] { atomicExch(&go, 1); });  // runs beside the first, or nothing ends
  third.synchronize();
  EXPECT_EQ(seen_by_third, 1);
  EXPECT_TRUE(first.idle());
}

TEST_F(DeviceShapes, AFaultDropsLaunchesOfItsStreamAndNotOfOthersInTheQueue) {
  Stream failing, between, sharing;
  int go = 0, ran = 0;
  failing.enqueue({}, "fails", [&] {
    wait_for(go);
    throw std::runtime_error("on purpose");
  });
  sharing.enqueue({}, "shares", [&] { atomicAdd(&ran, 1); });
  failing.enqueue({}, "dropped", [&] { atomicAdd(&ran, 100); });
  sharing.enqueue({}, "shares", [&] { atomicAdd(&ran, 1); });
  atomicExch(&go, 1);
  EXPECT_THROW(failing.synchronize(), KernelFault);
  sharing.synchronize();
  EXPECT_EQ(ran, 2);
}

TEST_F(DeviceShapes, BlocksBeyondTheLimitWaitUntilOneHasEnded) {
  for (const bool share : {false, true}) {
    int resident = 0, most = 0, started = 0;
    Stream stream, beside;
    const auto body = [&] {
      atomicMax(&most, atomicAdd(&resident, 1) + 1);
      atomicAdd(&started, 1);
      while (atomicAdd(&started, 0) < 4) relax(50'000);  // as many as there may be do become resident
      atomicSub(&resident, 1);
    };
    stream.enqueue({.grid = 20, .blocks_share_threads = share}, "some", body);
    beside.enqueue({.grid = 20, .blocks_share_threads = share}, "more", body);
    stream.synchronize();
    beside.synchronize();
    EXPECT_EQ(most, 4);
    EXPECT_EQ(started, 40);
  }
}

TEST_F(DeviceShapes, WaitingForKernelsWaitsForAllThatWereLaunchedBefore) {
  int go = 0, ended = 0;
  Stream running, empty;
  running.enqueue({}, "running", [&] { wait_for(go); });
  running.enqueue({}, "queued", [&] { atomicAdd(&ended, 1); });
  const std::string launches = describe_launches();
  EXPECT_NE(launches.find("running: 0 of 1 blocks have ended\n"), std::string::npos) << launches;
  EXPECT_NE(launches.find("queued: 0 of 1 blocks have ended, none has started: waits for running in its queue"),
            std::string::npos)
      << launches;
  int seen = 0;
  std::thread waiter([&] {
    wait_for_kernels("a test");
    seen = atomicAdd(&ended, 0);
  });
  atomicExch(&go, 1);
  waiter.join();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(describe_launches(), "");
  wait_for_kernels("nothing runs");
}

TEST_F(DeviceShapes, KernelsHaveAClockOfTheirOwn) {
  std::uint64_t inside_ns = 0;
  long long ticks = 0;
  Stream stream;
  const std::uint64_t before_ns = clock_ns();
  stream.enqueue({}, "clocks", [&] {
    inside_ns = clock_ns();
    ticks = clock64();
  });
  stream.synchronize();
  EXPECT_GE(inside_ns, before_ns + kYearsNs - 1000);
  EXPECT_LE(inside_ns, clock_ns() + kYearsNs);
  EXPECT_EQ(inside_ns % 1000, 0u);
  EXPECT_GE(ticks, static_cast<long long>(inside_ns));
}

TEST_F(DeviceShapes, AShapeThatCannotBeIsRefused) {
  EXPECT_THROW(set_device_shape({.resident_blocks_max = 0}), std::invalid_argument);
  EXPECT_THROW(set_device_shape({.resident_blocks_max = kResidentBlocksMax + 1}), std::invalid_argument);
  EXPECT_THROW(set_device_shape({.kernel_clock_step_ns = 0}), std::invalid_argument);
  int together = 0;
  Stream stream;
  stream.enqueue({4}, "meet", [&] {
    atomicAdd(&together, 1);
    while (atomicAdd(&together, 0) < 4) relax(50'000);
  });
  stream.synchronize();
  EXPECT_THROW(set_device_shape({.resident_blocks_max = 3}), std::logic_error);
}

TEST_F(DeviceShapes, KernelsUseDeviceMemoryAndHostThreadsCopyIt) {
  constexpr int kCount = 5000;
  auto* const memory = static_cast<int*>(allocate_device_memory(kCount * sizeof(int)));
  std::vector<int> values(kCount, 1), zeros(kCount, 7);
  copy_device_memory(zeros.data(), memory, kCount * sizeof(int));
  EXPECT_EQ(zeros, std::vector<int>(kCount, 0));
  copy_device_memory(memory, values.data(), kCount * sizeof(int));
  Stream stream;
  stream.enqueue({2, 4}, "add", [&] { atomicAdd(&memory[blockIdx.x], 1); });
  stream.synchronize();
  if (!kSanitized) {  // a sanitizer ends the process at the fault
    stream.enqueue({}, "fails", [&] { *static_cast<volatile int*>(nullptr) = memory[0]; });
    EXPECT_THROW(stream.synchronize(), KernelFault);
    // A signal's handler leaves the thread without its rights.
    stream.enqueue({8}, "add after a fault", [&] { atomicAdd(&memory[2], 1); });
    stream.synchronize();
    copy_device_memory(values.data(), memory, kCount * sizeof(int));
    EXPECT_EQ(values[2], 9);
  }
  copy_device_memory(values.data(), memory, kCount * sizeof(int));
  EXPECT_EQ(values[0], 5);
  EXPECT_EQ(values[1], 5);
  EXPECT_EQ(values[3], 1);
  free_device_memory(memory);
}

TEST_F(DeviceShapes, AHostThreadThatTouchesDeviceMemoryFaults) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer runs no death tests with threads";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!device_memory_is_guarded()) GTEST_SKIP() << "this processor or kernel has no protection keys";
  auto* const memory = static_cast<volatile int*>(allocate_device_memory(sizeof(int)));
  EXPECT_DEATH(*memory = 1, "");
  std::thread([&] { EXPECT_DEATH(static_cast<void>(*memory), ""); }).join();  // so do threads that were made later
  free_device_memory(const_cast<int*>(memory));
}

TEST_F(DeviceShapes, ACallThatWaitsForAKernelThatWaitsForItEndsTheProgramAndNamesBoth) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer runs no death tests with threads";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_each_other = [] {
    DeviceShape shape = device_shape();
    shape.wait_max_ns = 20'000'000;
    set_device_shape(shape);
    int go = 0;
    Stream stream;
    stream.enqueue({}, "waits_for_memory", [&] { wait_for(go); });
    wait_for_kernels("pinning 4096 bytes");
    atomicExch(&go, 1);
  };
  EXPECT_DEATH(wait_for_each_other(),
               "pinning 4096 bytes has waited for 0.02 s.*waits_for_memory: 0 of 1 blocks have ended");
}

TEST_F(DeviceShapes, LaunchesBeyondThoseThatAStreamHasWaitForRoom) {
  const DeviceShape before = device_shape();
  DeviceShape shape = before;
  shape.queued_launches_max = 4;
  set_device_shape(shape);
  int go = 0, ended = 0;
  std::atomic<int> launched{0};
  Stream stream;
  std::thread launches([&] {
    stream.enqueue({}, "waits", [&] { wait_for(go); });
    for (int i = 0; i < 100; ++i) {
      launched = i + 1;  // at most 3 can be behind the first one, and a fourth waits
      stream.enqueue({}, "counts", [&] { atomicAdd(&ended, 1); });
    }
  });
  while (launched < 4) std::this_thread::yield();
  EXPECT_EQ(launched, 4);
  atomicExch(&go, 1);
  launches.join();
  stream.synchronize();
  EXPECT_EQ(ended, 100);
  set_device_shape(before);
}

TEST_F(DeviceShapes, ALaunchThatWaitsForRoomForEverEndsTheProgramAndIsNamed) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer runs no death tests with threads";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto launch_too_many = [] {
    DeviceShape shape = device_shape();
    shape.wait_max_ns = 20'000'000;
    shape.queued_launches_max = 4;
    set_device_shape(shape);
    int go = 0;
    Stream stream;
    stream.enqueue({}, "waits_for_the_host", [&] { wait_for(go); });
    for (int i = 0; i < 4; ++i) stream.enqueue({}, "one_of_many", [] {});
    atomicExch(&go, 1);
  };
  EXPECT_DEATH(launch_too_many(),
               "a launch of one_of_many has waited for 0.02 s.*4 launches of its stream.*Synchronize.*\n.*"
               "waits_for_the_host: 0 of 1 blocks have ended");
}

}  // namespace
}  // namespace cpu_device::test
