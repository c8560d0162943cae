// No memory for what a proxy is about to do: that connection is refused or ends, and nothing else does.
#include "gpusock/gpusock.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>

namespace gpusock {
namespace {

using failing_memory::Extent;

constexpr std::uint64_t kLongNs = 10'000'000'000;
constexpr std::uint64_t kShortNs = 20'000'000;

Options options_for_test() {
  Options options;
  options.observe = "";
  options.sockets_max = 16;
  return options;
}

/// Two contexts, and a connection between them that must not be disturbed.
class NoMemory : public testing::TestWithParam<const char*> {
 protected:
  NoMemory() {
    listener_ = server_.net().listen(this_thread(), at("127.0.0.1:0"));
    Endpoint local;
    EXPECT_EQ(server_.net().getsockname(listener_, local), 0);
    to_ = at("127.0.0.1:" + std::to_string(local.port));
    honest_ = client_.net().connect(this_thread(), to_, Deadline::after_ns(kLongNs));
    accepted_ = server_.net().accept(this_thread(), listener_, Deadline::after_ns(kLongNs));
    EXPECT_TRUE(talk(honest_, accepted_));
  }

  static Endpoint at(const std::string& address) { return Endpoint::parse(address + ",link=" + GetParam()); }

  /// True if a byte gets from the client to the server and back.
  bool talk(Socket client, Socket server, std::uint64_t patience_ns = kLongNs) {
    const auto self = this_thread();
    char byte = 'a';
    return client_.net().send(self, client, &byte, 1, 0, Deadline::after_ns(patience_ns)) == 1 &&
           server_.net().recv(self, server, &byte, 1, 0, Deadline::after_ns(patience_ns)) == 1 &&
           server_.net().send(self, server, &byte, 1, 0, Deadline::after_ns(patience_ns)) == 1 &&
           client_.net().recv(self, client, &byte, 1, 0, Deadline::after_ns(patience_ns)) == 1;
  }

  /// Connects, talks and closes while the nth allocation fails; false where there were not so many.
  bool try_one(std::uint64_t nth, Extent extent) {
    const auto self = this_thread();
    failing_memory::arm(nth, extent);
    const Socket client = client_.net().connect(self, to_, Deadline::after_ns(kLongNs));
    Socket server = client < 0 ? client : server_.net().accept(self, listener_, Deadline::after_ns(kShortNs));
    if (client >= 0 && server >= 0) talk(client, server, kShortNs);
    const bool honest_goes_on = talk(honest_, accepted_);
    const bool failed = failing_memory::disarm();
    if (!failed && client >= 0 && server == -ETIMEDOUT)
      server = server_.net().accept(self, listener_, Deadline::after_ns(kLongNs));  // it was slow
    if (client >= 0) client_.net().close(self, client);
    if (server >= 0) server_.net().close(self, server);
    EXPECT_TRUE(honest_goes_on) << "allocation " << nth;
    EXPECT_NE(client, -ETIMEDOUT) << "allocation " << nth;
    EXPECT_TRUE(failed || (client >= 0 && server >= 0))
        << "no allocation failed, and still " << client << " " << server;
    return failed;
  }

  /// Closes what was accepted too late, until nothing but the honest connection is left.
  void expect_nothing_left() {
    const auto others = [](const Context& context) {
      const auto sockets = context.sockets();
      return std::count_if(sockets.begin(), sockets.end(),
                           [](const SocketInfo& info) { return info.state != SocketState::listening; }) -
             1;
    };
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (others(server_) != 0 || others(client_) != 0) {
      const Socket late = server_.net().accept(this_thread(), listener_, Deadline::now());
      if (late >= 0) server_.net().close(this_thread(), late);
      ASSERT_LT(std::chrono::steady_clock::now(), until)
          << others(server_) << " sockets of the server are left, " << others(client_) << " of the client";
      std::this_thread::yield();
    }
  }

  Context server_{options_for_test()};
  Context client_{options_for_test()};
  Socket listener_ = -1, honest_ = -1, accepted_ = -1;
  Endpoint to_;
};

TEST_P(NoMemory, OneAllocationThatFailsEndsThatConnectionAlone) {
  std::uint64_t nth = 1;
  while (try_one(nth, Extent::one) && nth < 1000) {
    expect_nothing_left();
    ++nth;
  }
  EXPECT_GT(nth, 5u) << "allocations of a connection are no longer seen";
  EXPECT_LT(nth, 1000u);
  EXPECT_TRUE(talk(honest_, accepted_));
}

TEST_P(NoMemory, AllThatFailFromOneOnEndThatConnectionAlone) {
  std::uint64_t nth = 1;
  while (try_one(nth, Extent::all_from_there) && nth < 1000) {
    expect_nothing_left();
    ++nth;
  }
  EXPECT_LT(nth, 1000u);
  EXPECT_TRUE(talk(honest_, accepted_));
}

INSTANTIATE_TEST_SUITE_P(Links, NoMemory, testing::Values("tcp", "p2p", "auto"));

/// Each allocation of a context fails once, in a process of its own. Ends it: with 0 if a context was made, or an Error
/// of ENOMEM or EAGAIN said so.
[[noreturn]] void make_contexts(const char* shape) {
  setenv("GPUSOCK_CPU_SHAPE", shape, 1);
  Options options = options_for_test();
  options.connections_max = 2;
  options.ring_bytes = 4 << 10;
  options.host_rings.clear();  // tests that run meanwhile share them
  std::uint64_t nth = 0;
  for (bool failed = true; failed && nth < 10'000;) {
    const char* what = nullptr;
    failing_memory::arm(++nth, Extent::one);
    std::optional<Context> context;
    try {
      context.emplace(options);
    } catch (const Error& error) {
      const int value = error.code().value();
      if (value != ENOMEM && value != EAGAIN) what = "another error";
    } catch (const std::exception&) {
      what = "no Error of gpusock's";
    }
    failed = failing_memory::disarm();  // before the context ends
    if (what == nullptr) continue;
    std::fprintf(stderr, "allocation %d: %s\n", static_cast<int>(nth), what);
    std::_Exit(1);
  }
  std::_Exit(nth > 5 && nth < 10'000 ? 0 : 2);
}

TEST(NoMemoryForContexts, TheConstructorSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* shape : {"cpu", "gpu"}) EXPECT_EXIT(make_contexts(shape), testing::ExitedWithCode(0), "") << shape;
}

/// Whatever allocation fails, the device has none of the file's memory afterwards.
TEST(NoMemoryForHostRings, TheConstructorReturnsWhatItHasMapped) {
  const auto platform = std::make_shared<proxy::PinningPlatform>();
  const std::string name = "no-memory-" + std::to_string(getpid());
  bool attached = false;  // in an attempt that failed
  for (std::uint64_t nth = 1;; ++nth) {
    const proxy::HostRings::Settings settings{name, 64, 4096, 0};
    std::shared_ptr<proxy::HostRings> rings;
    const int before = platform->attachments;
    failing_memory::arm(nth, Extent::one);
    try {
      rings = std::make_shared<proxy::HostRings>(platform, settings);
    } catch (const std::bad_alloc&) {
    }
    const bool failed = failing_memory::disarm();
    if (rings == nullptr) {
      EXPECT_EQ(platform->attached, 0) << "allocation " << nth;
      attached |= platform->attachments > before;
    }
    if (!failed) break;
  }
  EXPECT_TRUE(attached) << "no allocation failed after the device was given the memory";
}

/// A listener, too, is refused, and can be opened once there is memory again.
TEST(NoMemoryForListeners, ListenSaysSo) {
  Context context(options_for_test());
  const Endpoint at = Endpoint::parse("127.0.0.1:0,link=tcp");
  for (std::uint64_t nth = 1;; ++nth) {
    failing_memory::arm(nth, Extent::one);
    const Socket listener = context.net().listen(this_thread(), at);
    if (!failing_memory::disarm()) {
      EXPECT_GE(listener, 0);
      EXPECT_GT(nth, 1u);
      return;
    }
    EXPECT_TRUE(listener >= 0 || listener == -ENOMEM) << listener;
    context.net().close(this_thread(), listener);
  }
}

}  // namespace
}  // namespace gpusock
