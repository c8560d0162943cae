// Contexts that come and go beside kernels that run on: on a GPU their memory cannot be freed meanwhile.
#include "connected.hpp"

#include "cpu_device/device_shape.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace gpusock::test {
namespace {

Options small_options() {
  Options options;
  options.sockets_max = 8;
  options.connections_max = 4;
  options.ring_bytes = 4 << 10;
  options.observe.clear();
  options.host_rings.clear();
  return options;
}

/// A context whose kernel, once it is started, runs until the end.
class Other {
 public:
  ~Other() { raise(flag_[0]); }
  void start() {
    launch(context_, {.grid = 1, .block = 1, .shared_bytes = 0, .stream = &stream_}, wait_for_flag, flag_.data());
  }
  bool runs() const { return !stream_.idle(); }

 private:
  Context context_{small_options()};
  Mapped<std::uint64_t> flag_{context_, 1};
  Stream stream_{context_};
};

TEST(ContextsBesideKernels, OneThatEndsDoesNotWaitForAnothersKernel) {
  Other other;
  std::optional<Context> ending(small_options());
  Mapped<int>(*ending, 10);
  other.start();
  ending.reset();
  EXPECT_TRUE(other.runs());
}

TEST(ContextsBesideKernels, FreeingMemoryDoesNotWaitForAnothersKernel) {
  Other other;
  Context context(small_options());
  std::optional<Mapped<int>> mapped(std::in_place, context, 10);
  std::optional<DeviceBuffer<int>> buffer(std::in_place, context, 10);
  other.start();
  mapped.reset();
  buffer.reset();
  EXPECT_TRUE(other.runs());
}

TEST(ContextsBesideKernels, WhatWasKeptIsNotFreedWhileAnothersKernelRuns) {
  Other other;
  Context context(small_options());
  Mapped<std::uint64_t> flag(context, 1);
  std::optional<Stream> stream(context);
  std::optional<Mapped<int>> mapped(std::in_place, context, 10);
  launch(context, {.grid = 1, .block = 1, .shared_bytes = 0, .stream = &*stream}, wait_for_flag, flag.data());
  mapped.reset();  // kept: the launch may use it
  other.start();
  raise(flag[0]);
  stream.reset();
  context.synchronize();
  EXPECT_TRUE(other.runs());
}

/// The peer has the ring memory of a context that is gone: giving it back must not make the peer's proxy wait for
/// kernels.
TEST(ContextsBesideKernels, APeersRingMemoryOutlivesItsContext) {
  Other other;
  Context peer(small_options());
  std::optional<Context> maker(small_options());
  const Net net = peer.net();
  const HostListener listener(*maker, "p2p");
  const Socket socket = net.connect(this_thread(), listener.at, patience());
  ASSERT_GE(socket, 0);
  ASSERT_GE(listener.accept(), 0);
  maker.reset();  // nothing runs: all that can be is freed
  other.start();
  EXPECT_EQ(net.close(this_thread(), socket), 0);
  const Deadline until = patience();
  while (!peer.sockets().empty() && !until.passed()) sched_yield();
  EXPECT_TRUE(peer.sockets().empty()) << "its proxy goes on";
  EXPECT_TRUE(other.runs());
}

/// Looks that the proxy's thread makes while a kernel runs, from its naps or without any.
TEST(ContextsBesideKernels, TheProxyNapsOrSpinsAsTheOptionSays) {
  for (const bool spin : {true, false}) {
    Options options = small_options();
    options.spin = spin;
    Context context(options);
    Mapped<std::uint64_t> flag(context, 1);
    const auto await_steps = [&](std::uint64_t count) {
      const std::uint64_t until = context.stats().proxy_steps + count;
      while (context.stats().proxy_steps < until) sched_yield();
    };
    const auto await_naps = [&](std::uint64_t count) {
      const std::uint64_t until = context.stats().proxy_wakeups + count;
      while (context.stats().proxy_wakeups < until) sched_yield();
    };
    launch(context, {}, wait_for_flag, flag.data());
    if (spin) {
      await_steps(2);  // it may have been asleep
      const std::uint64_t naps = context.stats().proxy_wakeups;
      await_steps(1000);
      EXPECT_EQ(context.stats().proxy_wakeups, naps);
    } else {
      await_naps(3);
    }
    raise(flag[0]);
    context.synchronize();
    await_naps(3);
  }
}

TEST(ContextsBesideKernels, OneThatIsMadeWaitsForThemAndTheProgramSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_two = [] {
    Other other;
    other.start();
    cpu_device::DeviceShape shape = cpu_device::device_shape();
    shape.wait_max_ns = 20'000'000;
    cpu_device::set_device_shape(shape);
    const Context second(small_options());
  };
  EXPECT_DEATH(make_two(), "pinning [0-9]+ bytes of host memory has waited for 0.02 s.*wait_for_flag.*0 of 1 blocks");
}

}  // namespace
}  // namespace gpusock::test
