// The fabric link's protocol on a fabric inside the test: any order, any delay, and peers that lie.
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/fabric/transport.hpp"
#include "host_proxy/links/fabric/idle_endpoints.hpp"
#include "host_proxy/links/fabric/peer_endpoint.hpp"
#include "host_proxy/links/one_sided_link.hpp"
#include "tests/support/stream_pair.hpp"
#include "tests/unit/fabric/memory_fabric.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {
namespace {

using fake::MemoryStream;

std::byte byte_at(std::uint64_t salt, std::uint64_t offset) {
  return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15u + salt) >> 53);
}

/// One end of a connection: the link, and a caller that sends and receives.
class End final : public LinkEvents {
 public:
  End(std::shared_ptr<PeerEndpoint> peer, std::uint64_t ring_bytes, bool accepts)
      : segment(std::make_shared<Segment>(std::make_shared<HostPlatform>(), ring_bytes)),
        transport(std::make_unique<FabricTransport>(std::move(peer), segment, accepts)) {}

  void establish(std::unique_ptr<ByteStream> stream, std::uint64_t salt) {
    ringbuf::RingMemory tx = segment->proxy_rings().tx, rx = segment->proxy_rings().rx;
    tx.origin = rx.origin = kStart;
    for (auto& word : words) word = kStart;
    const table::RingPair rings{{tx, &words[0], &words[1], kStart}, {rx, &words[2], &words[3], kStart}};
    link = std::make_unique<OneSidedLink>(std::move(transport), std::move(stream), rings, *this);
    sender = rings.tx.producer();
    receiver = rings.rx.consumer();
    salt_ = salt;
  }

  void send_up_to(std::uint64_t bytes) {
    bytes = std::min(bytes, sender.writable());
    const auto spans = sender.spans(bytes);
    for (const auto& span : {spans.first, spans.second}) {
      for (std::uint64_t i = 0; i < span.bytes; ++i) span.data[i] = byte_at(salt_, sent++);
    }
    sender.commit(bytes);
  }

  void receive_up_to(std::uint64_t bytes, std::uint64_t peers_salt) {
    bytes = std::min(bytes, receiver.readable());
    const auto spans = receiver.spans(bytes);
    for (const auto& span : {spans.first, spans.second}) {
      for (std::uint64_t i = 0; i < span.bytes; ++i) wrong += span.data[i] != byte_at(peers_salt, received++);
    }
    receiver.release(bytes);
  }

  void end() {
    link->end_sending();
    link->end_receiving();
    link->close();
    closed = true;
  }

  void on_ended(std::uint64_t final_position) override { ended_at = final_position - kStart; }
  void on_peer_read_shut_down() override { read_shut_down = true; }
  void on_failed(int failure) override { error = failure; }

  static constexpr std::uint64_t kStart = ~std::uint64_t{0} - 5000;  // positions wrap on the way
  static constexpr std::uint64_t kNotYet = ~std::uint64_t{0};
  std::shared_ptr<Segment> segment;
  std::unique_ptr<FabricTransport> transport;
  std::unique_ptr<Link> link;
  std::uint64_t words[4];
  ringbuf::ByteProducer<> sender;
  ringbuf::ByteConsumer<> receiver;
  std::uint64_t sent = 0, received = 0, wrong = 0, ended_at = kNotYet;
  bool read_shut_down = false, closed = false, shut = false;
  int error = 0;

 private:
  std::uint64_t salt_ = 0;
};

/// A connection between two endpoints that others use as well. `a` connected, `b` accepted.
struct Pair {
  Pair(std::shared_ptr<PeerEndpoint> a_peer, std::shared_ptr<PeerEndpoint> b_peer, std::uint64_t a_ring,
       std::uint64_t b_ring)
      : a(std::move(a_peer), a_ring, false), b(std::move(b_peer), b_ring, true) {
    const Grant grant = a.transport->grant();
    index_at_a = grant.index;
    const Grant back = b.transport->grant();
    index_at_b = back.index;
    key_at_b = back.memory_key;
    EXPECT_EQ(b.transport->take_grant(grant), 0);
    a.establish(std::make_unique<MemoryStream>(to_a, to_b), 1);
    b.establish(std::make_unique<MemoryStream>(to_b, to_a), 2);
  }
  bool can_destroy() const { return a.link->can_destroy() && b.link->can_destroy(); }

  std::shared_ptr<MemoryStream::Wire> to_a = std::make_shared<MemoryStream::Wire>(),
                                      to_b = std::make_shared<MemoryStream::Wire>();
  End a, b;
  std::uint32_t index_at_a, index_at_b;
  std::uint64_t key_at_b;
};

class FabricLinkTest : public testing::Test {
 protected:
  explicit FabricLinkTest(std::uint64_t seed = 1) : fabric_(seed) {}

  std::shared_ptr<PeerEndpoint> make_peer(MemoryPort*& port) {
    auto made = std::make_unique<MemoryPort>(fabric_);
    port = made.get();
    return std::make_shared<PeerEndpoint>(std::move(made), Identity{}, "memory");
  }
  std::unique_ptr<Pair> connect(std::uint64_t a_ring = 4096, std::uint64_t b_ring = 4096) {
    return std::make_unique<Pair>(a_peer_, b_peer_, a_ring, b_ring);
  }
  void turn(std::initializer_list<Pair*> pairs) {
    for (std::uint64_t i = fabric_.below(4); i > 0; --i) fabric_.step();
    a_peer_->poll();
    b_peer_->poll();
    for (Pair* pair : pairs) {
      pair->a.link->progress();
      pair->b.link->progress();
    }
  }
  /// Sends both ways until so many bytes have gone each way; false if that does not happen.
  bool converse(Pair& pair, std::uint64_t bytes) {
    for (int i = 0;
         i < 200'000 && (pair.a.received < bytes || pair.b.received < bytes) && pair.a.error == 0 && pair.b.error == 0;
         ++i) {
      for (End* end : {&pair.a, &pair.b}) {
        if (end->sent < bytes) end->send_up_to(std::min(bytes - end->sent, 1 + fabric_.below(3000)));
        end->receive_up_to(1 + fabric_.below(3000), end == &pair.a ? 2 : 1);
      }
      turn({&pair});
    }
    return pair.a.received == bytes && pair.b.received == bytes && pair.a.wrong == 0 && pair.b.wrong == 0;
  }
  bool close(Pair& pair) {
    pair.a.end();
    pair.b.end();
    for (int i = 0; i < 10'000 && !pair.can_destroy(); ++i) turn({&pair});
    return pair.can_destroy();
  }

  MemoryFabric fabric_;
  MemoryPort *a_port_ = nullptr, *b_port_ = nullptr;
  std::shared_ptr<PeerEndpoint> a_peer_ = make_peer(a_port_), b_peer_ = make_peer(b_port_);
};

class AnyOrder : public FabricLinkTest, public testing::WithParamInterface<int> {
 protected:
  AnyOrder() : FabricLinkTest(static_cast<std::uint64_t>(GetParam())) {}
};

TEST_P(AnyOrder, EveryByteArrivesOnceAndEveryConnectionEnds) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()) + ": --gtest_filter=*AnyOrder*/" + std::to_string(GetParam() - 1));
  std::vector<std::unique_ptr<Pair>> pairs;
  const std::uint64_t rings[] = {4096, 8192, 131072};
  for (int i = 0; i < 4; ++i) pairs.push_back(connect(rings[fabric_.below(3)], rings[fabric_.below(3)]));
  int ended = 0;
  for (int i = 0; i < 200'000 && ended < 12; ++i) {
    auto& pair = pairs[fabric_.below(pairs.size())];
    for (End* end : {&pair->a, &pair->b}) {
      constexpr std::uint64_t kBytes = 100'000;
      End& other = end == &pair->a ? pair->b : pair->a;
      if (!end->shut && end->sent < kBytes) end->send_up_to(1 + fabric_.below(fabric_.below(8) == 0 ? 100'000 : 2000));
      if (fabric_.below(3) != 0) end->receive_up_to(1 + fabric_.below(8000), end == &pair->a ? 2 : 1);
      if (!end->shut && end->sent >= kBytes) {
        end->shut = true;
        end->link->end_sending();
      }
      if (!end->closed && end->shut && end->ended_at != End::kNotYet && end->received == end->ended_at) {
        EXPECT_EQ(end->received, other.sent);
        end->end();
      }
    }
    turn({pair.get()});
    ASSERT_EQ(pair->a.error, 0);
    ASSERT_EQ(pair->b.error, 0);
    if (!pair->can_destroy()) continue;
    ASSERT_EQ(pair->a.wrong + pair->b.wrong, 0u);
    ++ended;
    pair = nullptr;  // its index is free before the next one asks
    pair = connect(rings[fabric_.below(3)], rings[fabric_.below(3)]);
    EXPECT_LT(pair->index_at_a, 4u) << "indices are used again";
  }
  EXPECT_EQ(ended, 12);
  pairs.clear();
  a_peer_ = b_peer_ = nullptr;
  EXPECT_TRUE(fabric_.regions.empty()) << "nothing stays registered";
}
INSTANTIATE_TEST_SUITE_P(Seeds, AnyOrder, testing::Range(1, 21));

TEST_F(FabricLinkTest, AReaderThatLeavesEndsTheSenderWhoseBytesAreDropped) {
  const auto pair = connect();
  pair->a.send_up_to(4096);
  for (int i = 0; i < 50; ++i) turn({pair.get()});
  pair->a.send_up_to(4096);
  pair->b.end();
  for (int i = 0; i < 1000 && !pair->a.read_shut_down; ++i) turn({pair.get()});
  EXPECT_TRUE(pair->a.read_shut_down);
  pair->a.end();
  for (int i = 0; i < 1000 && !pair->can_destroy(); ++i) turn({pair.get()});
  EXPECT_TRUE(pair->can_destroy());
  EXPECT_EQ(pair->a.error, 0);
  EXPECT_EQ(pair->b.error, 0);
}

TEST_F(FabricLinkTest, AConnectionThatBreaksLeavesItsMemoryUntilLateWritesCannotHurtAndItsIndexUnused) {
  auto kept = connect();
  auto broken = connect();
  const std::uint32_t index = broken->index_at_a;
  broken->b.send_up_to(3000);
  for (int i = 0; i < 200 && fabric_.pending.empty(); ++i) turn({broken.get()});
  ASSERT_FALSE(fabric_.pending.empty());
  broken = nullptr;
  auto next = connect();
  EXPECT_NE(next->index_at_a, index);
  EXPECT_TRUE(converse(*kept, 20'000));
  EXPECT_TRUE(converse(*next, 20'000)) << next->a.error << " " << next->b.error;
}

// --- peers that lie. `a` does, to `b`; another connection of the same pair goes on.

struct Lie {
  const char* name;
  void (*tell)(FabricLinkTest& test, MemoryFabric& fabric, MemoryPort& b_port, Pair& pair);
};

void notice(Pair& pair, std::uint64_t kind, std::uint64_t value) {
  const std::uint64_t words[] = {kind, value};
  const auto bytes = std::as_bytes(std::span(words));
  pair.to_b->bytes.insert(pair.to_b->bytes.end(), bytes.begin(), bytes.end());
}

void credit(MemoryFabric& fabric, MemoryPort& b_port, Pair& pair, Credit credit) {
  std::memcpy(fabric.regions.at(pair.key_at_b).memory.data(), &credit, sizeof credit);
  b_port.tell_arrived(CompletionData{pair.index_at_b, 0, 0}.pack());
}

const Lie kLies[] = {
    {"ASequenceThatIsNotDue",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       port.tell_arrived(CompletionData{pair.index_at_b, 15, 1}.pack());
     }},
    {"AFragmentTwice",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       for (int i = 0; i < 2; ++i) port.tell_arrived(CompletionData{pair.index_at_b, 3, 1}.pack());
     }},
    {"MoreThanTheRingHolds",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       port.tell_arrived(CompletionData{pair.index_at_b, 0, 4097}.pack());
     }},
    {"MoreThanAFragmentHolds",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       port.tell_arrived(CompletionData{pair.index_at_b, 0, 65535}.pack());
     }},
    {"MoreThanWasGranted",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       port.tell_arrived(CompletionData{pair.index_at_b, 0, 4096}.pack());
       port.tell_arrived(CompletionData{pair.index_at_b, 1, 1}.pack());
     }},
    {"CreditForBytesThatWereNotSent",
     [](FabricLinkTest&, MemoryFabric& fabric, MemoryPort& port, Pair& pair) {
       credit(fabric, port, pair, {1, 0});
     }},
    {"CreditForFragmentsThatWereNotSent",
     [](FabricLinkTest&, MemoryFabric& fabric, MemoryPort& port, Pair& pair) {
       credit(fabric, port, pair, {0, 1});
     }},
    {"AnEndBeforeWhatWasSent",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort& port, Pair& pair) {
       port.tell_arrived(CompletionData{pair.index_at_b, 0, 100}.pack());
       pair.b.error = 0;
       notice(pair, 1, 50);
     }},
    {"LessThanItSaidItSent",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) {
       notice(pair, 1, 50);
       notice(pair, 17, 0);
     }},
    {"MoreThanItMaySend", [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) { notice(pair, 17, 4097); }},
    {"QuietBeforeThisSideHasStopped",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) { notice(pair, 18, 0); }},
    {"DrainedBeforeThisSideIsQuiet",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) { notice(pair, 19, 0); }},
    {"AGrantTwice", [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) { notice(pair, 16, 0); }},
    {"ANoticeThatThereIsNot", [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) { notice(pair, 99, 0); }},
    {"ClosedInTheMiddle",
     [](FabricLinkTest&, MemoryFabric&, MemoryPort&, Pair& pair) {
       notice(pair, 1, 0);
       notice(pair, 3, 0);
     }},
};

class Liar : public FabricLinkTest, public testing::WithParamInterface<Lie> {};

TEST_P(Liar, LosesItsOwnConnectionAndNoOther) {
  const auto honest = connect(), lying = connect();
  ASSERT_TRUE(converse(*honest, 5000));
  GetParam().tell(*this, fabric_, *b_port_, *lying);
  for (int i = 0; i < 100 && lying->b.error == 0; ++i) {
    turn({honest.get()});
    lying->b.link->progress();
  }
  EXPECT_EQ(lying->b.error, EPROTO);
  EXPECT_TRUE(converse(*honest, 50'000)) << honest->a.error << " " << honest->b.error;
  EXPECT_TRUE(close(*honest));
}
INSTANTIATE_TEST_SUITE_P(Lies, Liar, testing::ValuesIn(kLies),
                         [](const auto& lie) { return std::string(lie.param.name); });

/// There is room for it, and credit: but a piece ends where the ring does, so this one was never written.
TEST_F(FabricLinkTest, APieceThatPassesTheRingsEndLosesItsConnection) {
  const auto pair = connect();
  const auto arrive = [&](std::uint32_t sequence, std::uint32_t bytes) {
    b_port_->tell_arrived(CompletionData{pair->index_at_b, sequence, bytes}.pack());
    while (!b_port_->completions.empty()) b_peer_->poll();  // which takes as many as it likes
    pair->b.link->progress();
  };
  arrive(0, 4000);
  pair->b.receive_up_to(4000, 1);
  pair->b.link->progress();
  arrive(1, 97);
  EXPECT_EQ(pair->b.error, EPROTO);
}

TEST_F(FabricLinkTest, CreditForLittleIsGivenToAPeerThatHasUsedAllUp) {
  const auto pair = connect(8192, 4096);
  pair->a.send_up_to(4097);
  for (int i = 0; i < 1000; ++i) turn({pair.get()});
  ASSERT_EQ(pair->b.receiver.readable(), 4096u);
  pair->b.receive_up_to(1, 1);
  for (int i = 0; i < 1000; ++i) turn({pair.get()});
  EXPECT_EQ(pair->b.receiver.readable(), 4096u);
}

TEST_F(FabricLinkTest, WhatIsAboutNoConnectionHurtsNone) {
  const auto pair = connect();
  for (const std::uint32_t index : {1u, 77u, kConnectionsMax - 1}) {
    b_port_->tell_arrived(CompletionData{index, 0, 10}.pack());
    b_port_->tell_arrived(CompletionData{index, 0, 0}.pack());
  }
  EXPECT_TRUE(converse(*pair, 50'000));
  EXPECT_TRUE(close(*pair));
}

TEST_F(FabricLinkTest, AnErrorOfAWriteEndsItsConnectionAndAnErrorOfTheEndpointAll) {
  const auto first = connect(), second = connect(), third = connect();
  b_port_->completions.push_back(
      {Completion::Kind::failed, std::uint64_t{first->index_at_b} << 8, 0, EIO, "the cable"});
  for (int i = 0; i < 100 && first->b.error == 0; ++i) turn({first.get(), second.get(), third.get()});
  EXPECT_EQ(first->b.error, ECONNRESET);
  EXPECT_EQ(second->b.error, 0);
  b_port_->completions.push_back({Completion::Kind::failed, Completion::kNoToken, 0, EIO, "the NIC"});
  for (int i = 0; i < 100 && third->b.error == 0; ++i) turn({first.get(), second.get(), third.get()});
  EXPECT_EQ(second->b.error, ECONNRESET);
  EXPECT_EQ(third->b.error, ECONNRESET);
}

// --- a network that is lost, of which the fabric says nothing, as libfabric's provider tcp

class LostNetwork : public FabricLinkTest {
 protected:
  /// Nothing gets through any more.
  void lose(Pair& pair) {
    fabric_.tells_nothing = true;
    pair.to_a->lost = pair.to_b->lost = true;
  }
  void settle(Pair& pair) {
    for (int i = 0; i < 50; ++i) turn({&pair});
  }
  /// As the proxy, which looks again when it is due, until so much time has gone by or the sender has been told.
  void pass(Pair& pair, std::uint64_t duration_ns) {
    const std::uint64_t until_ns = now_ns_ + duration_ns;
    while (now_ns_ < until_ns && pair.a.error == 0) {
      settle(pair);
      now_ns_ = std::min({until_ns, pair.a.link->maintain(now_ns_), pair.b.link->maintain(now_ns_)});
    }
  }
  static constexpr std::uint64_t kSecondNs = 1'000'000'000;
  static constexpr std::uint64_t kDayNs = 86'400 * kSecondNs;
  std::uint64_t now_ns_ = 1;
};

TEST_F(LostNetwork, ASenderThatWaitsForRoomIsTold) {
  const auto pair = connect();
  pair->a.send_up_to(4096);
  settle(*pair);
  pair->a.send_up_to(4096);
  pass(*pair, 10 * kSecondNs);
  ASSERT_EQ(pair->a.error, 0);
  lose(*pair);
  pass(*pair, 2 * NetworkProbe::kLastNs);
  EXPECT_EQ(pair->a.error, ECONNRESET);
}

TEST_F(LostNetwork, WhoHasSentALittleIsTold) {
  const auto pair = connect();
  settle(*pair);
  lose(*pair);
  pair->a.send_up_to(10);
  pass(*pair, 4 * NetworkProbe::kFirstNs);
  EXPECT_EQ(pair->a.sender.writable(), 4096u) << "the fabric says that all went well";
  EXPECT_EQ(pair->a.error, ECONNRESET);
}

TEST_F(LostNetwork, NothingIsAskedWhileNothingIsUnderWay) {
  const auto pair = connect();
  ASSERT_TRUE(converse(*pair, 20'000));
  pass(*pair, kDayNs);
  lose(*pair);
  EXPECT_EQ(pair->a.link->maintain(now_ns_), detail::kNever);
  EXPECT_EQ(pair->b.link->maintain(now_ns_), detail::kNever);
}

TEST_F(LostNetwork, APeerWhoseCallersDoNotReadOrThatIsStoppedIsNotTakenForOne) {
  const auto pair = connect();
  pair->a.send_up_to(4096);
  settle(*pair);
  pair->a.send_up_to(4096);
  pass(*pair, kDayNs);
  for (const std::uint64_t until_ns = now_ns_ + kDayNs; now_ns_ < until_ns;) {  // nobody there reads notices either
    now_ns_ = std::min(until_ns, pair->a.link->maintain(now_ns_));
    pair->a.link->progress();
  }
  EXPECT_EQ(pair->a.error, 0);
  EXPECT_LE(pair->to_b->bytes.size(), 16 * (kDayNs / NetworkProbe::kLastNs + 1)) << "notices pile up there";
  pair->b.receive_up_to(4096, 1);
  settle(*pair);
  pair->b.receive_up_to(4096, 1);
  EXPECT_EQ(pair->b.received, 8192u);
  EXPECT_TRUE(pair->to_b->bytes.empty());
  EXPECT_TRUE(close(*pair));
  EXPECT_EQ(pair->b.error, 0);
}

/// A fabric that has to be idle to be closed, and tells what it had been through when it was.
class NicePort final : public FabricPort {
 public:
  NicePort(MemoryFabric& fabric, int& closed) : port_(fabric), fabric_(fabric), closed_(closed) {}
  bool closes_only_idle() const override { return true; }
  void close() override {
    ++closed_;
    EXPECT_TRUE(port_.completions.empty()) << "closed with news unread";
    EXPECT_EQ(fabric_.regions.size(), others_regions) << "closed while it could still be written to";
    port_.close();
  }
  std::span<const std::byte> address() const override { return port_.address(); }
  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    return port_.add_peer(address, peer);
  }
  bool registers_sources() const override { return true; }
  std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                      int& error) override {
    return port_.register_memory(memory, access, error);
  }
  int write(const FabricWrite& write) override { return port_.write(write); }
  bool read(std::vector<Completion>& into) override { return port_.read(into); }
  void tell_arrived() { port_.tell_arrived(0); }

  std::size_t others_regions = 0;

 private:
  MemoryPort port_;
  MemoryFabric& fabric_;
  int& closed_;
};

class IdleEndpointsTest : public testing::Test {
 protected:
  std::shared_ptr<PeerEndpoint> make() {
    auto port = std::make_unique<NicePort>(fabric_, closed_);
    last_port_ = port.get();
    auto peer = std::make_shared<PeerEndpoint>(std::move(port), Identity{}, "memory");
    idle_->keep(peer);
    return peer;
  }
  std::unique_ptr<FabricTransport> connect(std::shared_ptr<PeerEndpoint> peer) {
    return std::make_unique<FabricTransport>(std::move(peer),
                                             std::make_shared<Segment>(std::make_shared<HostPlatform>(), 4096), false);
  }

  MemoryFabric fabric_{1};
  int closed_ = 0;
  NicePort* last_port_ = nullptr;
  std::unique_ptr<IdleEndpoints> idle_ = std::make_unique<IdleEndpoints>();
};

TEST_F(IdleEndpointsTest, AnEndpointClosesWhenItHasBeenIdleForLongEnough) {
  auto transport = connect(make());
  idle_->maintain(1);
  idle_->maintain(1 + 10 * IdleEndpoints::kIdleNs);
  EXPECT_EQ(closed_, 0) << "it has a connection";
  transport.reset();
  last_port_->tell_arrived();
  const std::uint64_t idle_at = 2 + 10 * IdleEndpoints::kIdleNs;
  idle_->maintain(idle_at);
  idle_->maintain(idle_at + IdleEndpoints::kIdleNs - 1);
  EXPECT_EQ(closed_, 0);
  idle_->maintain(idle_at + IdleEndpoints::kIdleNs);
  EXPECT_EQ(closed_, 1);
}

TEST_F(IdleEndpointsTest, AConnectionMeanwhileBeginsItAnew) {
  const std::weak_ptr<PeerEndpoint> peer = make();
  idle_->maintain(1);
  connect(peer.lock());  // and it is gone again
  idle_->maintain(IdleEndpoints::kIdleNs);
  idle_->maintain(IdleEndpoints::kIdleNs + 1);
  idle_->maintain(2 * IdleEndpoints::kIdleNs);
  EXPECT_EQ(closed_, 0);
  idle_->maintain(2 * IdleEndpoints::kIdleNs + 1);
  EXPECT_EQ(closed_, 1);
}

TEST_F(IdleEndpointsTest, OnlySoManyAreKept) {
  auto busy = connect(make());
  for (std::size_t i = 0; i < IdleEndpoints::kIdleMax + 3; ++i) {
    make();
    last_port_->others_regions = 2;
    idle_->maintain(i + 1);
  }
  EXPECT_EQ(closed_, 3);
  EXPECT_EQ(idle_->size(), IdleEndpoints::kIdleMax + 1) << "and the one that is used";
  idle_->maintain(2 * IdleEndpoints::kIdleNs);
  EXPECT_EQ(idle_->size(), 1u);
  busy.reset();
  for (const std::uint64_t turn : {3, 4}) idle_->maintain(turn * IdleEndpoints::kIdleNs);
  EXPECT_EQ(idle_->size(), 0u);
}

TEST_F(IdleEndpointsTest, WhatAContextLeavesIsClosedByAnother) {
  connect(make());  // it is reset at once
  EXPECT_EQ(fabric_.regions.size(), 2u);
  idle_.reset();
  EXPECT_EQ(closed_, 0);
  EXPECT_TRUE(fabric_.regions.empty()) << "its memory is no longer the peer's";
  IdleEndpoints another;
  another.maintain(1);
  another.maintain(IdleEndpoints::kIdleNs + 1);
  EXPECT_EQ(closed_, 1);
}

TEST(PeerEndpoint, WhatAResetLeavesIsTakenBackInTime) {
  MemoryFabric fabric(1);
  const auto peer = std::make_shared<PeerEndpoint>(std::make_unique<MemoryPort>(fabric), Identity{}, "memory");
  const auto segment = std::make_shared<Segment>(std::make_shared<HostPlatform>(), 4096);
  auto transport = std::make_unique<FabricTransport>(peer, segment, false);
  ASSERT_EQ(transport->take_grant(transport->grant()), 0);
  while (transport->write(segment->proxy_rings().tx.data, 100) == -EAGAIN) continue;
  transport.reset();
  peer->maintain(1);
  peer->maintain(PeerEndpoint::kLeftoverNs);
  EXPECT_EQ(fabric.regions.size(), 2u) << "a late write breaks nothing";
  peer->maintain(PeerEndpoint::kLeftoverNs + 1);
  EXPECT_EQ(fabric.regions.size(), 1u) << "the peer's key is gone; the write that is still going on has its memory";
  fabric.step();
  for (int i = 0; i < 100; ++i) peer->poll();
  peer->maintain(PeerEndpoint::kLeftoverNs + 2);
  EXPECT_TRUE(fabric.regions.empty());
}

/// What completed then is not known: it may be what a connection waits for.
TEST_F(FabricLinkTest, WhereThereIsNoMemoryForCompletionsTheConnectionsEnd) {
  const auto pair = connect();
  a_port_->read_fails = true;
  turn({pair.get()});
  EXPECT_EQ(pair->a.error, ENOMEM);
  EXPECT_TRUE(a_peer_->exhausted()) << "the next connection gets another endpoint";
  a_port_->read_fails = false;
  a_peer_->poll();
}

TEST(FabricGrant, IsCheckedFieldByField) {
  MemoryFabric fabric(1);
  const auto peer = std::make_shared<PeerEndpoint>(std::make_unique<MemoryPort>(fabric), Identity{}, "memory");
  const auto segment = std::make_shared<Segment>(std::make_shared<HostPlatform>(), 4096);
  FabricTransport transport(peer, segment, false);
  const Grant good = transport.grant();
  const auto refused = [&](auto change) {
    Grant grant = good;
    change(grant);
    return transport.take_grant(grant) == EPROTO;
  };
  EXPECT_TRUE(refused([](Grant& grant) { grant.index = kConnectionsMax; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.ring_bytes = 0; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.ring_bytes = 4097; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.ring_bytes = std::uint64_t{1} << 63; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.address_bytes = 0; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.address_bytes = 257; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.address_bytes = 3; })) << "no address of this fabric";
  fabric.has_memory = false;
  EXPECT_EQ(transport.take_grant(good), ENOMEM) << "which is not the peer's fault";
  fabric.has_memory = true;
  EXPECT_EQ(transport.take_grant(good), 0);
  EXPECT_EQ(transport.take_grant(good), EPROTO) << "once";
}

}  // namespace
}  // namespace gpusock::proxy::fabric
