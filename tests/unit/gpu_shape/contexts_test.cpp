// Contexts that come and go beside kernels that run on: on a GPU their memory cannot be freed meanwhile.
#include "connected.hpp"

#include "cpu_device/device_shape.hpp"
#include "cpu_device/sanitizers.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

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

// No connection to such a listener could ever have rings.
TEST(ContextsWithPinnedRings, RefuseAListenerOfLargerOnes) {
  Context context(small_options());
  const Net net = context.net();
  for (const char* link : {"", ",link=tcp", ",link=p2p", ",type=seqpacket"}) {
    const std::string any = std::string("127.0.0.1:0") + link;
    EXPECT_EQ(net.listen(this_thread(), Endpoint::parse(any + ",ring=8K")), -ENOBUFS) << link;
    EXPECT_GE(net.listen(this_thread(), Endpoint::parse(any + ",ring=4K")), 0) << link;
  }
}

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

/// Two contexts with host rings of a name, connected by p2p: the acceptor is first.
struct ConnectedPair {
  explicit ConnectedPair(const std::string& name) : options(small_options()) {
    options.host_rings = name;
    options.host_connections_max = 2;
    for (auto& context : contexts) context = std::make_unique<Context>(options);
    const HostListener listener(*contexts[0], "p2p");
    EXPECT_GE(contexts[1]->net().connect(this_thread(), listener.at, patience()), 0);
    EXPECT_GE(listener.accept(), 0);
  }

  Options options;
  std::unique_ptr<Context> contexts[2];
};

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(ContextsThatEnd, LeaveNothingInEitherOrder) {
  const std::string name = "ended-" + std::to_string(getpid());
  { const Context warm(small_options()); }  // what the process keeps: pools, files of the system
  for (const std::size_t first : {0u, 1u}) {
    const std::size_t before = open_descriptors();
    ConnectedPair pair(name);
    pair.contexts[first].reset();
    pair.contexts[1 - first].reset();
    EXPECT_EQ(open_descriptors(), before) << (first == 0 ? "the acceptor's" : "the connector's") << " ended first";
    EXPECT_FALSE(std::filesystem::exists(proxy::HostRings::path_of(name)));
  }
}

#if !CPU_DEVICE_TSAN  // exit() takes seconds there
/// The name is the same in the test and in the process that it starts.
std::string name_of_exiting() {
  constexpr const char* kVariable = "EXITING_PROCESS";
  setenv(kVariable, std::to_string(getpid()).c_str(), 0);
  return std::string("exiting-") + std::getenv(kVariable);
}

TEST(ContextsThatEnd, LeaveNothingBehindAProcessThatExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string name = name_of_exiting();
  const auto exit_with = [&](bool acceptor_ends, bool connector_ends) {
    static ConnectedPair* const pair = new ConnectedPair(name);  // static: no leak
    if (!std::filesystem::exists(proxy::HostRings::path_of(name))) _exit(1);
    if (acceptor_ends) pair->contexts[0].reset();
    if (connector_ends) pair->contexts[1].reset();
    std::exit(0);
  };
  for (const bool acceptor_ends : {false, true}) {
    for (const bool connector_ends : {false, true}) {
      EXPECT_EXIT(exit_with(acceptor_ends, connector_ends), testing::ExitedWithCode(0), "");
      EXPECT_FALSE(std::filesystem::exists(proxy::HostRings::path_of(name))) << acceptor_ends << connector_ends;
    }
  }
}

#if !CPU_DEVICE_ASAN  // for which a child's copies of what threads have are leaks
/// A child has what its parent keeps of a context that ended, and must not end it.
TEST(ContextsThatEnd, AreTheParentsInAChild) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const std::string name = "forked-" + std::to_string(getpid());
  ConnectedPair pair(name);
  pair.contexts[0].reset();  // kept: the other one has its ring memory
  EXPECT_EXIT(std::exit(0), testing::ExitedWithCode(0), "");
  EXPECT_TRUE(proxy::HostRings::look_at(proxy::HostRings::path_of(name))->has_users);
  pair.contexts[1].reset();
  EXPECT_FALSE(std::filesystem::exists(proxy::HostRings::path_of(name)));
}
#endif
#endif

/// The shape's memory is ordinary memory, of which a child has a copy; what it shares with its parent it leaves alone.
TEST(ForkedProcess, CallsOnSocketsAreCanceledInTheChild) {
  for (const char* link : {"tcp", "p2p"}) {
    Options options = small_options();
    options.connections_max = 8;
    Context context(options);
    const Net net = context.net();
    const HostListener listener(context, link);
    const Socket one = net.connect(this_thread(), listener.at, patience()), two = listener.accept();
    const auto passes = [&](const std::string& sent) {
      std::string got(sent.size(), ' ');
      return net.send(this_thread(), one, sent.data(), sent.size(), 0, patience()) == std::ssize(sent) &&
             net.recv(this_thread(), two, got.data(), got.size(), kWaitAll, patience()) == std::ssize(got) &&
             got == sent;
    };
    ASSERT_TRUE(passes("before")) << link;
    Mapped<Socket> kernels(context, 1);
    launch(context, {}, connect_kernel, net, listener.at, kernels.data());
    context.synchronize();
    ASSERT_GE(kernels[0], 0);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      char byte = 'y';
      const auto canceled = [](auto result) { return result == -ECANCELED; };
      const bool as_promised = canceled(net.send(this_thread(), one, &byte, 1)) &&
                               canceled(net.recv(this_thread(), two, &byte, 1)) &&
                               canceled(net.accept(this_thread(), listener.socket)) &&
                               canceled(net.connect(this_thread(), listener.at)) &&
                               canceled(net.listen(this_thread(), Endpoint::parse("127.0.0.1:0"), 1)) &&
                               net.close(this_thread(), two) == 0;
      _exit(as_promised ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << link << ' ' << status;
    EXPECT_TRUE(passes("after")) << link;
    launch(context, {}, connect_kernel, net, listener.at, kernels.data());  // nothing is canceled for kernels either
    context.synchronize();
    EXPECT_GE(kernels[0], 0) << link;
  }
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
  EXPECT_DEATH(
      make_two(),
      "mapping [0-9]+ bytes of device memory for the host has waited for 0.02 s.*wait_for_flag.*0 of 1 blocks");
}

}  // namespace
}  // namespace gpusock::test
