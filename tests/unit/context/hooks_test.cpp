// How host threads of a context meet its proxy, and its peers.
#include "gpusock/context/context_impl.hpp"

#include <gtest/gtest.h>

#include <cstring>
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

}  // namespace
}  // namespace gpusock
