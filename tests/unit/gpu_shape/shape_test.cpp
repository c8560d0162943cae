// What the shape itself is.
#include "connected.hpp"

#include "cpu_device/device_memory.hpp"
#include "cpu_device/device_shape.hpp"
#include "cpu_device/sanitizers.hpp"
#include "gpusock/context/device.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

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

TEST(GpuShape, AGpuThatIsNoneIsRefused) {
  for (const int number : {-1, 2}) {
    Options options;
    options.gpu = number;
    try {
      const Context context(options);
      ADD_FAILURE() << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code().value(), ENODEV);
      EXPECT_NE(std::string(error.what()).find(std::to_string(number)), std::string::npos) << error.what();
    }
  }
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

/// Streams that come and go do not get to the queue of a kernel that runs.
TEST(GpuShape, EachStreamHasAQueueOfItsOwn) {
  Context context;
  Mapped<std::uint64_t> flag(context, 1);
  Mapped<std::uint32_t> word(context, 1);
  launch(context, {}, wait_for_flag, flag.data());
  for (unsigned i = 0; i < 2 * cpu_device::device_shape().hardware_queues; ++i) {
    Stream stream(context);
    launch(context, {.stream = &stream}, fill, word.data(), i);
    stream.synchronize();
    EXPECT_EQ(word[0], i);
  }
  raise(flag[0]);
  context.synchronize();
}

#if !CPU_DEVICE_TSAN
TEST(GpuShape, HostThreadsThatTouchADeviceBufferFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Context context;
  const DeviceBuffer<std::uint32_t> buffer(context, 1);
  if (!cpu_device::device_memory_is_guarded()) GTEST_SKIP() << "this processor or kernel has no protection keys";
  EXPECT_DEATH(*static_cast<volatile std::uint32_t*>(buffer.data()) = 1, "");
}

/// In a process of its own, in which this variable is set: what fails is said, and the exit status is why.
template <class Action>
void act_with(const char* variable, const char* value, Action action) {
  setenv(variable, value, 1);
  try {
    action();
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    _exit(error.code().value());
  }
  _exit(0);
}

/// As on a GPU: nothing hangs because kernels that wait for each other share a queue.
TEST(GpuShape, MoreStreamsThanHardwareQueuesAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_streams = [](int count) {
    return [count] {
      Context context;
      std::vector<std::unique_ptr<Stream>> streams;
      while (static_cast<int>(streams.size()) < count) streams.push_back(std::make_unique<Stream>(context));
    };
  };
  constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
  EXPECT_EXIT(act_with(kQueues, "1", make_streams(1)), testing::ExitedWithCode(ENOBUFS),
              "the others .0.: .* Set CUDA_DEVICE_MAX_CONNECTIONS to at most 32 .here it is 1.");
  EXPECT_EXIT(act_with(kQueues, "4", make_streams(3)), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(act_with(kQueues, "4", make_streams(4)), testing::ExitedWithCode(ENOBUFS), "the others .3.:");
  EXPECT_EXIT(act_with(kQueues, "many", make_streams(8)), testing::ExitedWithCode(ENOBUFS), "the others .7.:");
  EXPECT_EXIT(act_with(kQueues, "99", make_streams(31)), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(act_with(kQueues, "99", make_streams(32)), testing::ExitedWithCode(ENOBUFS),
              "the others .31.: .* Use fewer");
}

/// The limit on the size of files (ulimit -f) is also one on device memory in files.
TEST(GpuShape, ALimitOnFilesIsAnErrorAndEndsNoProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_context = [](RingPlacement words) {
    signal(SIGXFSZ, SIG_DFL);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none{0, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    Options options;
    options.observe.clear();
    options.words = words;
    try {
      const Context context(options);
    } catch (const Error& error) {
      setrlimit(RLIMIT_FSIZE, &before);  // standard error is a file here
      std::fputs(error.what(), stderr);
      _exit(error.code().value());
    }
    _exit(0);
  };
  EXPECT_EXIT(make_context(RingPlacement::device), testing::ExitedWithCode(EFBIG), "device memory; see ulimit -f");
  EXPECT_EXIT(make_context(RingPlacement::automatic), testing::ExitedWithCode(EFBIG), "see ulimit -f");
}

TEST(GpuShape, AShapeThatIsNoneIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_context = [] { const Context context; };
  EXPECT_EXIT(act_with("GPUSOCK_CPU_SHAPE", "round", make_context), testing::ExitedWithCode(EINVAL),
              "GPUSOCK_CPU_SHAPE='round' is no shape of the CPU device: cpu, gpu or gpus-apart");
}
#endif

}  // namespace
}  // namespace gpusock::test
