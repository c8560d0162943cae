// Memory that is freed while kernels may use it.
#include "gpusock/context/kernel_memory.hpp"
#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace gpusock::detail {
namespace {

class FakeStream final : public DeviceStream {
 public:
  void synchronize() override { is_idle = true; }
  bool idle() const override { return is_idle; }
  bool is_idle = true;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(bool freeing_waits) : freeing_waits_(freeing_waits) {}
  std::shared_ptr<proxy::Platform> platform() override { return nullptr; }
  bool has_own_side() const override { return false; }
  void* allocate(std::size_t) override { return *live.insert(reinterpret_cast<void*>(next_ += 64)).first; }
  void free(void* memory) noexcept override { live.erase(memory); }
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void* allocate_mapped(std::size_t bytes) override { return allocate(bytes); }
  void free_mapped(void* memory) noexcept override { live.erase(memory); }
  bool free_without_waiting(void* memory, bool) noexcept override {
    for (const FakeStream* stream : streams) {
      if (freeing_waits_ && !stream->is_idle) return false;
    }
    free(memory);
    return true;
  }
  bool free_without_waiting(const std::function<void()>&) noexcept override { return false; }
  std::unique_ptr<DeviceStream> make_stream() override { return nullptr; }
  void relax(std::uint64_t) override {}

  std::set<void*> live;
  std::vector<const FakeStream*> streams;  ///< of this device, whichever context has them

 private:
  std::uintptr_t next_ = 0;
  bool freeing_waits_;
};

class KernelMemoryTest : public testing::TestWithParam<bool> {
 protected:
  KernelMemoryTest() {
    memory.add(one);
    memory.add(two);
    device.streams = {&one, &two, &of_another_context};
  }
  void run(FakeStream& stream) {
    stream.is_idle = false;
    memory.note_launch(stream);
  }
  bool live(void* piece) const { return device.live.contains(piece); }

  FakeDevice device{GetParam()};
  FakeStream one, two, of_another_context;
  KernelMemory memory{device};
};

TEST_P(KernelMemoryTest, IsFreedAtOnceWhereNothingRuns) {
  void* piece = memory.allocate(KernelMemory::Kind::mapped, 1);
  run(one);
  one.is_idle = true;
  memory.free(piece);
  EXPECT_FALSE(live(piece));
}

TEST_P(KernelMemoryTest, IsKeptUntilTheLaunchesMadeBeforeItsEndHaveEnded) {
  void* piece = memory.allocate(KernelMemory::Kind::device, 1);
  run(one);
  run(two);
  memory.free(piece);
  EXPECT_TRUE(live(piece));
  one.is_idle = true;
  memory.free_unused();
  EXPECT_TRUE(live(piece));
  two.is_idle = true;
  memory.free_unused();
  EXPECT_FALSE(live(piece));
}

TEST_P(KernelMemoryTest, IsFreedWithTheStreamThatUsedIt) {
  void* piece = memory.allocate(KernelMemory::Kind::mapped, 1);
  run(one);
  memory.free(piece);
  one.synchronize();
  memory.remove(one);
  EXPECT_FALSE(live(piece));
}

TEST_P(KernelMemoryTest, ALaunchOfBeforeKeepsItOnlyWhereFreeingWouldWait) {
  run(one);
  void* piece = memory.allocate(KernelMemory::Kind::mapped, 1);
  run(two);
  two.is_idle = true;
  memory.free(piece);
  EXPECT_EQ(live(piece), GetParam());
  one.is_idle = true;
  memory.free_unused();
  EXPECT_FALSE(live(piece));
}

TEST_P(KernelMemoryTest, ALaunchOfAfterwardsKeepsItOnlyWhereFreeingWouldWait) {
  void* piece = memory.allocate(KernelMemory::Kind::mapped, 1);
  run(one);
  memory.free(piece);
  run(two);
  one.is_idle = true;
  memory.free_unused();
  EXPECT_EQ(live(piece), GetParam());
}

TEST_P(KernelMemoryTest, AnotherContextsKernelKeepsItOnlyWhereFreeingWouldWait) {
  of_another_context.is_idle = false;
  void* piece = memory.allocate(KernelMemory::Kind::device, 1);
  run(one);
  one.is_idle = true;
  memory.free(piece);
  EXPECT_EQ(live(piece), GetParam());
  memory.free_unused();
  EXPECT_EQ(live(piece), GetParam());
  of_another_context.is_idle = true;
  memory.free_unused();
  EXPECT_FALSE(live(piece));
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelMemoryTest, testing::Bool(),
                         [](const auto& waits) { return waits.param ? "WhereFreeingWaits" : "WhereFreeingDoesNot"; });

TEST(KernelMemory, WhatIsKeptGoesWithTheContext) {
  FakeDevice device(true);
  FakeStream stream;
  {
    KernelMemory memory(device);
    memory.add(stream);
    device.streams = {&stream};
    void* piece = memory.allocate(KernelMemory::Kind::device, 1);
    stream.is_idle = false;
    memory.note_launch(stream);
    memory.free(piece);
    EXPECT_EQ(device.live.size(), 1u);
  }
  EXPECT_TRUE(device.live.empty());
}

constexpr int kResults = 1 << 17;

__global__ void accept_and_tell(Net net, Socket listener, long* result) {
  const Socket socket = net.accept(this_thread(), listener);
  for (int i = 0; i < kResults; ++i) result[i] = socket;
}

/// As where an exception leaves between launch and synchronize. So much memory goes back to the system when it is
/// freed: a store to it then fails the kernel.
TEST(KernelMemory, AWaitingKernelMayStoreToWhatItsHostHasFreed) {
  Context context;
  const Socket listener = context.net().listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 1);
  ASSERT_GE(listener, 0);
  auto result = std::make_unique<Mapped<long>>(context, kResults);
  const long* const address = result->data();
  launch(context, {}, accept_and_tell, context.net(), listener, result->data());
  result.reset();
  const Mapped<long> next(context, kResults);
  EXPECT_NE(next.data(), address) << "memory that a kernel uses was given away";
  context.cancel();
  EXPECT_NO_THROW(context.synchronize());
  for (const long value : next) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace gpusock::detail
