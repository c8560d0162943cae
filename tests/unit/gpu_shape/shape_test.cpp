// What the shape itself is.
#include "connected.hpp"

#include "cpu_device/device_memory.hpp"
#include "cpu_device/sanitizers.hpp"
#include "gpusock/context/device.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace gpusock::test {
namespace {

__global__ void ask_for_stats(Net net, Socket socket, int* result) {
  SocketStats stats;
  *result = net.stats(socket, stats);
}

__global__ void fill(std::uint32_t* words, std::uint32_t value) { words[threadIdx.x] = value; }

TEST(GpuShape, KernelsAndHostThreadsHaveSocketsOfTheirOwn) {
  Context context;
  const HostListener listener(context, "auto");
  Mapped<Socket> socket(context, 1);
  Mapped<int> result(context, 1);
  launch(context, {}, connect_kernel, context.net(), listener.at, socket.data());
  const Socket accepted = listener.accept();
  context.synchronize();
  ASSERT_GE(socket[0], 0);
  ASSERT_GE(accepted, 0);
  SocketStats stats;
  EXPECT_EQ(context.net().stats(accepted, stats), 0);
  EXPECT_EQ(context.net().stats(socket[0], stats), -EBADF);
  launch(context, {}, ask_for_stats, context.net(), socket[0], result.data());
  context.synchronize();
  EXPECT_EQ(result[0], 0);
  launch(context, {}, ask_for_stats, context.net(), accepted, result.data());
  context.synchronize();
  EXPECT_EQ(result[0], -EBADF);
}

TEST(GpuShape, DeviceBuffersAreReachedByKernelsAndCopies) {
  Context context;
  DeviceBuffer<std::uint32_t> buffer(context, 8);
  launch(context, {.grid = 1, .block = 8}, fill, buffer.data(), 7u);
  context.synchronize();
  std::uint32_t got[8] = {};
  buffer.copy_out(got);
  EXPECT_EQ(got[0] + got[7], 14u);
}

/// Memory that other processes map: kernels reach it, and it is what its maker said.
TEST(GpuShape, ArenasAreDeviceMemory) {
  constexpr std::size_t kBytes = 10'000;
  Context context;
  Options second;
  second.gpu = 1;
  const auto gpu = detail::make_device({})->platform(), other = detail::make_device(second)->platform();
  EXPECT_NE(gpu->name_on_host(), other->name_on_host());
  const auto made = gpu->make_arena(kBytes);
  const auto file = [&] { return proxy::Descriptor(fcntl(made->descriptor(), F_DUPFD_CLOEXEC, 3)); };
  const auto mapped = gpu->map_arena(file(), kBytes, gpu->name_on_host());
  launch(context, {}, fill, reinterpret_cast<std::uint32_t*>(made->memory()), 7u);
  context.synchronize();
  std::uint32_t seen = 0;
  cpu_device::copy_device_memory(&seen, mapped->memory(), sizeof seen);
  EXPECT_EQ(seen, 7u);
  const auto from_other = other->map_arena(file(), kBytes, gpu->name_on_host());
  cpu_device::copy_device_memory(&seen, from_other->memory(), sizeof seen);
  EXPECT_EQ(seen, 7u);
  EXPECT_THROW(gpu->map_arena(file(), 10 * kBytes, gpu->name_on_host()), Error);
  EXPECT_THROW(gpu->map_arena(proxy::Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC)), kBytes, gpu->name_on_host()),
               Error);
  EXPECT_THROW(other->map_arena(file(), kBytes, other->name_on_host()), Error);
}

#if !CPU_DEVICE_TSAN
TEST(GpuShape, HostThreadsThatTouchADeviceBufferFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Context context;
  const DeviceBuffer<std::uint32_t> buffer(context, 1);
  if (!cpu_device::device_memory_is_guarded()) GTEST_SKIP() << "this processor or kernel has no protection keys";
  EXPECT_DEATH(*static_cast<volatile std::uint32_t*>(buffer.data()) = 1, "");
}

TEST(GpuShape, AShapeThatIsNoneIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_context = [] {
    setenv("GPUSOCK_CPU_SHAPE", "round", 1);
    try {
      const Context context;
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      _exit(error.code().value());
    }
    _exit(0);
  };
  EXPECT_EXIT(make_context(), testing::ExitedWithCode(EINVAL),
              "GPUSOCK_CPU_SHAPE='round' is no shape of the CPU device: cpu, gpu or gpus-apart");
}
#endif

}  // namespace
}  // namespace gpusock::test
