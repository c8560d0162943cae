// The memory of a context on CUDA.
#include "gpusock/context/device_holdings.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/cuda/fixture.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace gpusock::cuda_test {
namespace {

__global__ void sum(const unsigned char* bytes, std::size_t count, std::uint64_t* result) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += bytes[i];
  *result = total;
}

__global__ void fill(unsigned char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = 1;
}

constexpr std::size_t kCount = 1000;

class Memory : public testing::Test {
 protected:
  Context context{small_options()};
  Mapped<std::uint64_t> result{context, 1};
};

/// Streams of contexts do not wait for the default stream.
TEST_F(Memory, KernelsFindNewMemoryZeroed) {
  DeviceBuffer<unsigned char> bytes(context, kCount);
  launch(context, {}, sum, bytes.data(), kCount, result.data());
  context.synchronize();
  EXPECT_EQ(result[0], 0u);
}

TEST_F(Memory, WhatKernelsWriteIntoNewMemoryStays) {
  DeviceBuffer<unsigned char> bytes(context, kCount);
  launch(context, {}, fill, bytes.data(), kCount);
  context.synchronize();
  DeviceBuffer<unsigned char> another(context, kCount);  // which waits for all that the GPU was told to do
  launch(context, {}, sum, bytes.data(), kCount, result.data());
  context.synchronize();
  EXPECT_EQ(result[0], kCount);
}

TEST_F(Memory, CopiesPassWhileAKernelRunsOnEachOtherStream) {
  std::vector<std::unique_ptr<Stream>> streams;
  Mapped<std::uint64_t> words(context, 8);
  DeviceBuffer<std::uint64_t> there(context, 100);
  launch(context, {}, wait_for<1>, words.data());
  for (int i = 1; i < 8; ++i) {
    streams.push_back(std::make_unique<Stream>(context));
    launch(context, {.stream = streams.back().get()}, wait_for<1>, words.data() + i);
  }
  std::vector<std::uint64_t> values(100), back(100);
  std::iota(values.begin(), values.end(), 0);
  for (int i = 0; i < 3 * cuda_double::hardware_queues(); ++i)
    there.copy_in(values);  // a stream for each would get to a busy queue
  there.copy_out(back);
  EXPECT_EQ(back, values);
  for (std::uint64_t& word : words) raise(word);
  context.synchronize();
}

TEST_F(Memory, NoBytesAreNoCallOfCuda) {
  DeviceBuffer<int> nothing(context, 0);
  Mapped<int> mapped(context, 0);
  nothing.copy_in({});
  nothing.copy_out({});
}

/// The thread that frees may be the one that another context's kernel waits for.
TEST_F(Memory, FreeingDoesNotWaitForKernelsOfOtherContexts) {
  Context other(small_options());
  Mapped<std::uint64_t> word(other, 1);
  const std::size_t before = cuda_double::left().size();
  auto bytes = std::make_unique<DeviceBuffer<unsigned char>>(context, kCount);
  auto mapped = std::make_unique<Mapped<std::uint64_t>>(context, 1);
  launch(other, {}, wait_for<1>, word.data());
  bytes.reset();
  mapped.reset();
  context.synchronize();
  EXPECT_EQ(cuda_double::left().size(), before + 2);
  raise(word[0]);
  other.synchronize();
  context.synchronize();
  EXPECT_EQ(cuda_double::left().size(), before);
}

/// A connection that is closed in the middle of a copy leaves its rings to DeviceCopies until the copy has ended.
TEST_F(Memory, WhatAnEndedContextHadIsFreedAlsoWhereACopyWasUnderWay) {
  const std::vector<std::string> before = cuda_double::left();
  Options options = small_options();
  options.ring = RingPlacement::device;
  {
    const cuda_double::SlowCopies slow;
    detail::HeldByDevice held = detail::make_device_holdings(options);
    auto segment = held->segments.take(proxy::SegmentPool::Use::own, options.ring_bytes, RingPlacement::device);
    ASSERT_NE(segment, nullptr);
    auto host = held->segments.take(proxy::SegmentPool::Use::own, options.ring_bytes);
    ASSERT_NE(host, nullptr);
    ringbuf::RingSpans ring{};
    ring.first.data = segment->proxy_rings().rx.data;
    ring.first.bytes = 64;
    held->copies->add_ring();
    const auto copy = held->copies->copier().to_host(host->proxy_rings().rx.data, ring);
    held->copies->keep_until_ended(copy, std::make_shared<std::array<std::shared_ptr<proxy::Segment>, 2>>(
                                             std::array{std::move(segment), std::move(host)}));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatienceNs);
  const auto but_streams = [](std::vector<std::string> left) {  // which the process keeps
    std::erase(left, "stream");
    return left;
  };
  do {
    detail::free_ended_holdings();
    if (but_streams(cuda_double::left()) == but_streams(before)) return;
  } while (std::chrono::steady_clock::now() < until);
  FAIL() << cuda_double::left().size() << " pieces of memory, streams and events are left, of " << before.size();
}

/// A program that uses several GPUs chooses the current one for itself.
TEST_F(Memory, TheThreadsCurrentGpuStaysWhatItWas) {
  Options options = small_options();
  options.gpu = 1;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  int gpu = -1;
  const auto current = [&] {
    cudaGetDevice(&gpu);
    return gpu;
  };
  {
    Context second(options);
    EXPECT_EQ(current(), 0);
    Mapped<std::uint64_t> word(second, 1);
    DeviceBuffer<std::uint64_t> buffer(second, 1);
    EXPECT_EQ(current(), 0);
    launch(second, {}, set<1>, word.data(), std::uint64_t{7});
    EXPECT_EQ(current(), 0);
    second.synchronize();
    EXPECT_EQ(current(), 0);
    EXPECT_EQ(word[0], 7u);
    buffer.copy_in(std::vector<std::uint64_t>{1});
    EXPECT_EQ(current(), 0);
  }
  EXPECT_EQ(current(), 0);
}

/// Given to CUDA when the context is made, and taken back when it has ended; between the two no call concerns them.
TEST(HostRingMemory, IsRegisteredOnceForAllConnections) {
  Options options = small_options();
  options.host_rings = "cuda-test-" + std::to_string(getpid());
  options.host_connections_max = 3;
  const std::string registered = "cudaHostRegister " +
                                 std::to_string(4096 + (proxy::Arenas::table_bytes() + 4095) / 4096 * 4096 +
                                                3 * proxy::Segment::total_bytes(options.ring_bytes));
  const auto count = [](const std::string& what) {
    const auto all = cuda_double::left();
    return std::count_if(all.begin(), all.end(), [&](const std::string& each) { return each.starts_with(what); });
  };
  {
    const Context first(options), second(options);
    EXPECT_EQ(count(registered), 2) << "each process does so; these count as two";
    EXPECT_EQ(count("cuMemMap"), 3) << "each has an arena, and the second one has mapped the first one's";
    EXPECT_EQ(count("handle"), 0) << "the driver keeps what is mapped";
    options.ring = RingPlacement::host;
    const Context on_host(options);
    EXPECT_EQ(count("cuMemMap"), 3);
  }
  for (const char* kind : {"cudaHostRegister", "cuMemMap", "reserved"}) EXPECT_EQ(count(kind), 0) << kind;
}

/// Each registration of memory fails once while a context is made: how many there are, and how many end it.
struct Registrations {
  int made = 0, needed = 0;
};
Registrations registrations(const std::string& host_rings) {
  Options options = small_options();
  options.host_rings = host_rings;
  options.host_connections_max = 1;
  Registrations all;
  std::string failed;
  for (std::uint64_t n = 1; n == 1 || !failed.empty(); ++n) {
    cuda_double::fail_call(n);
    const std::string error = test::error_of([&] { const Context context(options); });
    failed = cuda_double::failed_call();
    cuda_double::fail_call(0);
    if (failed != "cudaHostRegister") continue;
    ++all.made;
    all.needed += error.empty() ? 0 : 1;
  }
  return all;
}

TEST(HostRingMemory, EndsAContextWhereItCannotBeRegisteredOnlyIfItWasNamed) {
  const Registrations none = registrations(""), automatic = registrations(proxy::HostRings::kAutomatic),
                      named = registrations("cuda-test-" + std::to_string(getpid()));
  EXPECT_EQ(automatic.made, none.made + 1);
  EXPECT_EQ(automatic.needed, none.needed);
  EXPECT_EQ(named.needed, none.needed + 1);
}

/// Where the GPU's memory cannot be shared, processes have rings in host memory.
TEST(HostRingMemory, DoesWithoutMemoryOfTheGpu) {
  Options options = small_options();
  options.host_rings = "cuda-test-" + std::to_string(getpid());
  cuda_double::set_shares_memory(false);
  {
    const Context context(options);
    for (const std::string& each : cuda_double::left()) EXPECT_FALSE(each.starts_with("cuMemMap")) << each;
  }
  cuda_double::set_shares_memory(true);
}

}  // namespace
}  // namespace gpusock::cuda_test
