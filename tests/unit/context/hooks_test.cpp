// How host threads of a context meet its proxy, and its peers.
#include "gpusock/context/context_impl.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace gpusock {
namespace {

TEST(Hooks, CallersMoveBytesPastTheRingOnlyIfTheyAssist) {
  Options options;
  options.assist = true;
  EXPECT_NE(Context(options).impl().hooks.move_past_ring, nullptr);
  options.assist = false;
  EXPECT_EQ(Context(options).impl().hooks.move_past_ring, nullptr);
}

TEST(Hooks, ASenderOnP2pCountsItsStoresForItsOwnSlotAlone) {
  Context context;
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=p2p"), 1);
  ASSERT_GE(listener, 0);
  Endpoint at;
  ASSERT_EQ(net.getsockname(listener, at), 0);
  const Socket sender = net.connect(this_thread(), at);
  ASSERT_GE(sender, 0);
  const Socket receiver = net.accept(this_thread(), listener);
  ASSERT_GE(receiver, 0);

  const auto counted = [&](Socket socket) {  // StoreChoice's first member
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, &context.impl().adaptations.at(table::slot_of(socket)).stores, sizeof bytes);
    return bytes;
  };
  const std::vector<char> bytes(8 << 10);
  ASSERT_EQ(net.send(this_thread(), sender, bytes.data(), bytes.size()), static_cast<std::int64_t>(bytes.size()));
  EXPECT_EQ(counted(sender), ringbuf::kHasStreamingStores ? bytes.size() : 0);
  EXPECT_EQ(counted(receiver), 0u);
  for (const Socket socket : {sender, receiver, listener}) EXPECT_EQ(net.close(this_thread(), socket), 0);
}

TEST(Hooks, AReceiverOnP2pLetsAStreamsBytesGatherUntilItHasToWait) {
  Context context;
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=p2p"), 1);
  Endpoint at;
  ASSERT_EQ(net.getsockname(listener, at), 0);
  const Socket sender = net.connect(this_thread(), at), receiver = net.accept(this_thread(), listener);
  ASSERT_GE(receiver, 0);
  const auto streams = [&] { return context.impl().adaptations.at(table::slot_of(receiver)).looks.streams(); };
  char byte = 0;
  const auto move_byte = [&] {
    return net.send(this_thread(), sender, &byte, 1) == 1 && net.recv(this_thread(), receiver, &byte, 1) == 1;
  };

  for (std::uint32_t waits = 0; waits < ringbuf::LookPace::kShortWaits; ++waits) {
    EXPECT_FALSE(streams());
    ASSERT_TRUE(move_byte());
  }
  EXPECT_TRUE(streams());
  EXPECT_EQ(net.recv(this_thread(), receiver, &byte, 1, 0, Deadline::after_ms(1)), -ETIMEDOUT);
  ASSERT_TRUE(move_byte());
  EXPECT_FALSE(streams());
  for (const Socket socket : {sender, receiver, listener}) EXPECT_EQ(net.close(this_thread(), socket), 0);
}

/// A socket pair of one context.
struct SocketPair {
  explicit SocketPair(const char* link) {
    const Net net = context.net();
    listener = net.listen(this_thread(), Endpoint::parse(std::string("127.0.0.1:0,link=") + link), 1);
    Endpoint at;
    EXPECT_EQ(net.getsockname(listener, at), 0);
    one = net.connect(this_thread(), at);
    other = net.accept(this_thread(), listener);
    EXPECT_GE(other, 0);
  }
  Context context;
  Socket listener = -1, one = -1, other = -1;
};

long sleeps_of_this_thread() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

TEST(Hooks, ACallerThatWaitsForLongSleepsUntilThereIsNews) {
  SocketPair tcp("tcp");
  const Net net = tcp.context.net();
  proxy::News* const news = tcp.context.impl().engine.news();
  ASSERT_NE(news, nullptr);
  char byte = 0;
  const long before = sleeps_of_this_thread();
  EXPECT_EQ(net.recv(this_thread(), tcp.other, &byte, 1, 0, Deadline::after_ms(300)), -ETIMEDOUT);
  EXPECT_LT(sleeps_of_this_thread() - before, 250) << "a look each half millisecond";

  std::thread sender([&] {
    while (news->sleepers == 0) std::this_thread::yield();
    EXPECT_EQ(net.send(this_thread(), tcp.one, &byte, 1), 1);
  });
  const std::uint32_t times = news->times;
  EXPECT_EQ(net.recv(this_thread(), tcp.other, &byte, 1), 1);
  EXPECT_NE(news->times, times);
  sender.join();

  std::thread canceling([&] {
    while (news->sleepers == 0) std::this_thread::yield();
    tcp.context.cancel();
  });
  EXPECT_EQ(net.recv(this_thread(), tcp.other, &byte, 1), -ECANCELED);
  canceling.join();
}

TEST(Hooks, WhereBytesComeWithoutTheProxyACallerDoesNotSleepForItsNews) {
  SocketPair p2p("p2p");
  EXPECT_EQ(p2p.context.impl().engine.news(), nullptr);
}

}  // namespace
}  // namespace gpusock
