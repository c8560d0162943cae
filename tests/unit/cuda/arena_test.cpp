// Memory of a GPU that other processes map.
#include "gpusock/cuda/platform.hpp"
#include "tests/unit/cuda/fixture.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::cuda_test {
namespace {

constexpr std::size_t kArenaBytes = 100'000;  // no whole granules

__global__ void put(std::byte* memory, std::size_t at, unsigned char value) { memory[at] = std::byte{value}; }

class Arena : public testing::Test {
 protected:
  ~Arena() override {
    arena.reset();
    EXPECT_EQ(cuda_double::left(), before);
  }
  static proxy::Descriptor copy_of(int descriptor) { return proxy::Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 3)); }
  Thrown mapping(cudart::CudaPlatform& where, int descriptor, std::size_t bytes, const std::string& device) {
    return thrown_by([&] { where.map_arena(copy_of(descriptor), bytes, device); });
  }
  int error_of_mapping(cudart::CudaPlatform& where, int descriptor, std::size_t bytes) {
    return mapping(where, descriptor, bytes, where.name_on_host()).error;
  }

  /// A launch on the context's own stream makes none later: it takes this one, which is kept.
  std::vector<std::string> left_with_a_stream() {
    { const Stream kept(context); }
    return cuda_double::left();
  }

  Context context{small_options()};
  std::vector<std::string> before = left_with_a_stream();
  cudart::CudaPlatform platform{0}, other{1};
  std::unique_ptr<proxy::DeviceArena> arena = platform.make_arena(kArenaBytes);
};

TEST_F(Arena, WhatOneKernelWritesAnotherReadsInItsOwnMapping) {
  const auto mapped = platform.map_arena(copy_of(arena->descriptor()), kArenaBytes, platform.name_on_host());
  ASSERT_NE(mapped->memory(), arena->memory());
  EXPECT_EQ(mapped->descriptor(), -1);
  launch(context, {}, put, arena->memory(), kArenaBytes - 1, static_cast<unsigned char>(42));
  context.synchronize();
  std::byte seen{};
  cudart::Gpu::get(0).copy(&seen, mapped->memory() + kArenaBytes - 1, 1, cudaMemcpyDeviceToHost);
  EXPECT_EQ(seen, std::byte{42});
  arena.reset();  // its maker goes first
  cudart::Gpu::get(0).copy(&seen, mapped->memory() + kArenaBytes - 1, 1, cudaMemcpyDeviceToHost);
  EXPECT_EQ(seen, std::byte{42});
}

TEST_F(Arena, OnlyAnArenaOfThisSizeOnThisGpuIsMapped) {
  EXPECT_EQ(error_of_mapping(platform, arena->descriptor(), 10 * kArenaBytes), EPROTO) << "a larger one was promised";
  EXPECT_EQ(error_of_mapping(other, arena->descriptor(), kArenaBytes), EPROTO) << "it is another GPU's";
  const proxy::Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(error_of_mapping(platform, null.get(), kArenaBytes), EPROTO);
  EXPECT_EQ(error_of_mapping(platform, -1, kArenaBytes), EPROTO);
}

TEST_F(Arena, AGpuWhoseMemoryIsNotSharedSaysSo) {
  cuda_double::set_shares_memory(false);
  const Thrown made = thrown_by([&] { platform.make_arena(kArenaBytes); });
  const int mapped = error_of_mapping(platform, arena->descriptor(), kArenaBytes);
  cuda_double::set_shares_memory(true);
  EXPECT_EQ(made.error, ENOTSUP);
  EXPECT_EQ(mapped, ENOTSUP);
  EXPECT_NE(made.what.find("GPU 0 with other processes: it has no virtual memory management"), std::string::npos)
      << made.what;
}

TEST_F(Arena, WhereACallFailsNothingIsLeft) {
  const auto with = cuda_double::left();
  const auto each_call_fails = [&](auto act) {
    bool failed = true;
    for (std::uint64_t n = 1; failed; ++n) {
      cuda_double::fail_call(n);
      (void)thrown_by(act);
      failed = !cuda_double::failed_call().empty();
      cuda_double::fail_call(0);
      EXPECT_EQ(cuda_double::left(), with) << "call " << n;
    }
  };
  each_call_fails([&] { platform.make_arena(kArenaBytes); });
  each_call_fails([&] { platform.map_arena(copy_of(arena->descriptor()), kArenaBytes, platform.name_on_host()); });
}

/// Kernels of another GPU use it where peers reach each other's memory. Its number there need not be known.
TEST_F(Arena, AnotherGpusKernelsMapItWhereTheyReachIt) {
  launch(context, {}, put, arena->memory(), kArenaBytes - 1, static_cast<unsigned char>(42));
  context.synchronize();
  for (const std::string& device : {platform.name_on_host(), std::string("ffff:77:00.0")}) {
    const auto mapped = other.map_arena(copy_of(arena->descriptor()), kArenaBytes, device);
    std::byte seen{};
    cudart::Gpu::get(0).copy(&seen, mapped->memory() + kArenaBytes - 1, 1, cudaMemcpyDeviceToHost);
    EXPECT_EQ(seen, std::byte{42}) << device;
  }
  cuda_double::set_peers_reach_each_other(false);
  const Thrown known = mapping(other, arena->descriptor(), kArenaBytes, platform.name_on_host());
  const Thrown hidden = mapping(other, arena->descriptor(), kArenaBytes, "ffff:77:00.0");
  cuda_double::set_peers_reach_each_other(true);
  EXPECT_EQ(known.error, ENOTSUP);
  EXPECT_NE(known.what.find("GPU 1 does not reach the memory of GPU 0"), std::string::npos) << known.what;
  EXPECT_EQ(hidden.error, EPROTO) << "the driver refuses it";
}

TEST_F(Arena, WhatMayWaitIsDoneWhileNoKernelRunsOrNotAtAll) {
  bool done = false;
  const auto act = [&] { done = true; };
  EXPECT_TRUE(platform.while_quiet(act));
  EXPECT_TRUE(std::exchange(done, false));
  Mapped<std::uint64_t> word(context, 1);
  launch(context, {}, wait_for<82>, word.data());
  EXPECT_FALSE(platform.while_quiet(act));
  EXPECT_FALSE(other.while_quiet(act)) << "a kernel of another GPU of this process";
  raise(word[0]);
  context.synchronize();
  EXPECT_FALSE(done);
  EXPECT_TRUE(other.while_quiet(act));
}

/// cuMemMap() may wait for kernels: what asks for it while one runs waits for that kernel's end.
TEST_F(Arena, MappingWaitsForKernels) {
  Mapped<std::uint64_t> word(context, 1);
  launch(context, {}, wait_for<81>, word.data());
  bool waited = false;
  {
    HangExpected hang([&] { raise(word[0]); });
    const auto mapped = platform.map_arena(copy_of(arena->descriptor()), kArenaBytes, platform.name_on_host());
    waited = hang.text().find("waits for") != std::string::npos;
  }
  context.synchronize();
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace gpusock::cuda_test
