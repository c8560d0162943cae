// Rings in device memory: their words move only once the copies have ended, whenever and in whatever order these do.
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/memory_copier.hpp"
#include "host_proxy/links/staged_link.hpp"
#include "host_proxy/links/tcp/tcp_link.hpp"
#include "host_proxy/memory/staged_ends.hpp"
#include "host_proxy/table/shared_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::proxy::staging_test {
namespace {

constexpr std::uint64_t kRing = 4096;
constexpr std::size_t kChunk = 512;

/// Copies end when the test says so.
class ManualCopier final : public Copier {
 public:
  Copy to_host(std::byte* to, const ringbuf::RingSpans& from) override { return start({to, from, true}); }
  Copy to_device(const ringbuf::RingSpans& to, const std::byte* from) override {
    return start({const_cast<std::byte*>(from), to, false});
  }
  State query(Copy copy) override {
    const State state = state_[copy];
    if (state != State::busy) state_.erase(copy);
    return state;
  }

  std::size_t started() const { return jobs_.size(); }
  void finish(Copy copy) {
    const Job& job = jobs_[copy];
    std::byte* host = job.host;
    for (const ringbuf::RingSpan& span : {job.ring.first, job.ring.second}) {
      if (span.bytes == 0) continue;
      std::memcpy(job.out ? host : reveal(span.data), job.out ? reveal(span.data) : host, span.bytes);
      host += span.bytes;
    }
    state_[copy] = State::done;
  }
  void fail(Copy copy) { state_[copy] = State::failed; }

 private:
  struct Job {
    std::byte* host;
    ringbuf::RingSpans ring;
    bool out;
  };
  Copy start(const Job& job) {
    jobs_.push_back(job);
    state_[jobs_.size() - 1] = State::busy;
    return jobs_.size() - 1;
  }
  std::deque<Job> jobs_;
  std::map<Copy, State> state_;
};

/// A ring in the CPU device's memory: as callers know it, and as the proxy does.
struct DeviceRing {
  std::vector<std::byte> bytes = std::vector<std::byte>(kRing);
  std::uint64_t committed = 0;
  std::uint64_t consumed = 0;
  ringbuf::ByteProducer<> producer{{bytes.data(), kRing}, &committed, &consumed};
  ringbuf::ByteConsumer<> consumer{{bytes.data(), kRing}, &committed, &consumed};
  ringbuf::ByteProducer<> proxy_producer{{hide(bytes.data()), kRing}, &committed, &consumed};
  ringbuf::ByteConsumer<> proxy_consumer{{hide(bytes.data()), kRing}, &committed, &consumed};

  void commit(const std::string& text) {
    std::size_t done = 0;
    ASSERT_GE(producer.writable(), text.size());
    const auto spans = producer.spans(text.size());
    for (const auto& span : {spans.first, spans.second}) {
      if (span.bytes != 0) std::memcpy(span.data, text.data() + done, span.bytes);
      done += span.bytes;
    }
    producer.commit(text.size());
  }
  std::string take() {
    std::string text;
    const auto spans = consumer.spans(consumer.readable());
    for (const auto& span : {spans.first, spans.second})
      text.append(reinterpret_cast<const char*>(span.data), span.bytes);
    consumer.release(text.size());
    return text;
  }
};

std::string text_of(const ringbuf::RingSpans& spans) {
  return {reinterpret_cast<const char*>(spans.first.data), spans.first.bytes};
}

class Staging : public testing::Test {
 protected:
  ManualCopier* copier_ = new ManualCopier;
  StagingPool pool_{
      std::make_shared<HostPlatform>(), std::unique_ptr<Copier>(copier_), {.chunks = 4, .chunk_bytes = kChunk}};
  DeviceRing ring_;
};

TEST_F(Staging, SendsNothingBeforeItsCopyHasEnded) {
  StagedSource source(ring_.proxy_consumer, nullptr, pool_);
  ring_.commit("abc");
  EXPECT_EQ(source.ready(true), 0u);
  EXPECT_FALSE(source.drained());
  EXPECT_TRUE(source.watches());
  copier_->finish(0);
  ASSERT_EQ(source.ready(true), 3u);
  EXPECT_EQ(text_of(source.spans(3)), "abc");
  EXPECT_EQ(ring_.consumed, 0u);  // not before it is on the network
  source.release(3);
  EXPECT_EQ(ring_.consumed, 3u);
  EXPECT_EQ(source.ready(true), 0u);
  EXPECT_TRUE(source.drained());
  EXPECT_FALSE(source.watches());
}

TEST_F(Staging, CopiesTheNextChunkWhileOneIsOnTheNetworkAndKeepsTheirOrder) {
  StagedSource source(ring_.proxy_consumer, nullptr, pool_);
  ring_.commit(std::string(kChunk, 'a') + std::string(kChunk, 'b') + std::string(kChunk, 'c'));
  source.ready(true);
  ASSERT_EQ(copier_->started(), 2u);
  copier_->finish(1);
  EXPECT_EQ(source.ready(true), 0u);  // the second is there, the first is not
  copier_->finish(0);
  ASSERT_EQ(source.ready(true), kChunk);
  EXPECT_EQ(text_of(source.spans(kChunk)), std::string(kChunk, 'a'));
  source.release(kChunk - 1);
  source.ready(true);
  EXPECT_EQ(copier_->started(), 2u);
  source.release(1);
  EXPECT_EQ(source.ready(true), kChunk);
  EXPECT_EQ(copier_->started(), 3u);  // the third is copied while the second is sent
  EXPECT_EQ(text_of(source.spans(kChunk)), std::string(kChunk, 'b'));
}

TEST_F(Staging, DeliversNothingBeforeItsCopyHasEndedAndKeepsOrder) {
  StagedSink sink(ring_.proxy_producer, nullptr, pool_);
  for (const char letter : {'x', 'y'}) {
    ASSERT_EQ(sink.room(), kChunk);
    std::memset(sink.spans(2).first.data, letter, 2);
    sink.commit(2);
  }
  EXPECT_EQ(sink.room(), 0u);  // both chunks are on their way
  EXPECT_FALSE(sink.full());
  copier_->finish(1);
  sink.room();
  EXPECT_EQ(ring_.committed, 0u);
  EXPECT_FALSE(sink.drained());
  copier_->finish(0);
  sink.room();
  EXPECT_EQ(ring_.committed, 4u);
  EXPECT_EQ(ring_.take(), "xxyy");
  EXPECT_TRUE(sink.drained());
}

TEST_F(Staging, PutsNoMoreThanTheRingHasRoomForWithWhatIsOnItsWay) {
  StagedSink sink(ring_.proxy_producer, nullptr, pool_);
  for (std::uint64_t put = 0, copy = 0; put < kRing; ++copy) {
    const std::uint64_t room = sink.room();
    ASSERT_EQ(room, std::min<std::uint64_t>(kChunk, kRing - put));
    const std::uint64_t bytes = std::min<std::uint64_t>(room, 300);
    sink.commit(bytes);
    put += bytes;
    copier_->finish(copy);
  }
  EXPECT_EQ(sink.room(), 0u);
  EXPECT_TRUE(sink.full());
  EXPECT_EQ(ring_.committed, kRing);
}

TEST_F(Staging, PassesTheEndOfTheRing) {
  StagedSource source(ring_.proxy_consumer, nullptr, pool_);
  std::uint64_t copy = 0;
  const auto pass = [&](const std::string& text) {
    ring_.commit(text);
    std::string sent;
    while (sent.size() < text.size()) {
      while (copy < copier_->started()) copier_->finish(copy++);
      const std::uint64_t ready = source.ready(true);
      sent += text_of(source.spans(ready));
      if (ready != 0) source.release(ready);
    }
    EXPECT_EQ(sent, text);
  };
  for (int i = 0; i < 5; ++i) pass(std::string(1000, static_cast<char>('a' + i)) + "end");
}

TEST_F(Staging, TakesBackFromWhoOnlyWaitsForTheNetworkAndCopiesAgain) {
  StagedSource waiting(ring_.proxy_consumer, nullptr, pool_);
  DeviceRing other_ring, third_ring;
  StagedSource waiting_too(other_ring.proxy_consumer, nullptr, pool_);
  ring_.commit(std::string(2 * kChunk, 'w'));
  other_ring.commit(std::string(2 * kChunk, 'v'));
  waiting.ready(true);
  waiting_too.ready(true);
  StagedSource asking(third_ring.proxy_consumer, nullptr, pool_);
  third_ring.commit("urgent");
  EXPECT_EQ(asking.ready(true), 0u);
  EXPECT_EQ(copier_->started(), 4u);  // all are being copied to: none can be given up
  EXPECT_TRUE(asking.watches());
  for (Copier::Copy copy = 0; copy < 4; ++copy) copier_->finish(copy);
  ASSERT_EQ(waiting.ready(false), kChunk);
  ASSERT_EQ(waiting_too.ready(false), kChunk);
  asking.ready(true);
  ASSERT_EQ(copier_->started(), 5u);
  copier_->finish(4);
  ASSERT_EQ(asking.ready(true), 6u);
  EXPECT_EQ(text_of(asking.spans(6)), "urgent");
  asking.release(6);
  waiting.ready(true);
  waiting_too.ready(true);
  ASSERT_EQ(copier_->started(), 6u);  // what was given up is copied again
  copier_->finish(5);
  for (StagedSource* source : {&waiting, &waiting_too}) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      ASSERT_EQ(source->ready(true), kChunk);
      EXPECT_EQ(text_of(source->spans(kChunk)), std::string(kChunk, source == &waiting ? 'w' : 'v'));
      source->release(kChunk);
    }
  }
}

TEST_F(Staging, KeepsChunkAndRingUntilTheCopyOfAConnectionThatIsGoneHasEnded) {
  auto keeper = std::make_shared<int>(0);
  {
    StagedSink sink(ring_.proxy_producer, keeper, pool_);
    sink.room();
    sink.commit(10);
  }
  pool_.collect();
  EXPECT_EQ(keeper.use_count(), 2);
  copier_->finish(0);
  pool_.collect();
  EXPECT_EQ(keeper.use_count(), 1);
  for (int i = 0; i < 4; ++i) EXPECT_NE(pool_.take(StagingPool::Need::idle), nullptr) << "chunk " << i;
  EXPECT_EQ(pool_.take(StagingPool::Need::urgent), nullptr);
}

/// A connection that takes and gives what the test says.
class FakeStream final : public ByteStream {
 public:
  struct Network {
    std::string sent, arriving;
    std::size_t takes = ~std::size_t{0};
    bool ended_writing = false, reset = false, peer_ended = false, deaf = false;
  };
  explicit FakeStream(Network& network) : network_(network) {}

  std::int64_t read(std::span<const iovec> into) override {
    if (network_.arriving.empty()) return network_.peer_ended ? 0 : -EAGAIN;
    const std::size_t bytes = std::min(into[0].iov_len, network_.arriving.size());
    std::memcpy(into[0].iov_base, network_.arriving.data(), bytes);
    network_.arriving.erase(0, bytes);
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t write(std::span<const iovec> from) override {
    if (network_.deaf) return -EPIPE;
    const std::size_t bytes = std::min(from[0].iov_len, network_.takes);
    if (bytes == 0) return -EAGAIN;
    network_.takes -= bytes;
    network_.sent.append(static_cast<const char*>(from[0].iov_base), bytes);
    return static_cast<std::int64_t>(bytes);
  }
  int connected() override { return 0; }
  int take_error() override { return 0; }
  void end_writing() override { network_.ended_writing = true; }
  void reset_on_close() override { network_.reset = true; }
  void set_no_delay(bool) override {}
  void set_keep_alive(bool) override {}
  Endpoint local() const override { return {}; }
  Endpoint peer() const override { return {}; }

 private:
  Network& network_;
};

class StagedTcp : public Staging, public LinkEvents {
 protected:
  void on_ended(std::uint64_t position) override { ended_at_ = static_cast<std::int64_t>(position); }
  void on_peer_deaf() override {}
  void on_failed(int error) override { error_ = error; }

  FakeStream::Network network_;
  DeviceRing rx_;
  std::int64_t ended_at_ = -1;
  int error_ = 0;
  TcpLink link_{std::make_unique<FakeStream>(network_),
                std::make_unique<StagedSource>(ring_.proxy_consumer, nullptr, pool_),
                std::make_unique<StagedSink>(rx_.proxy_producer, nullptr, pool_), *this};
};

TEST_F(StagedTcp, EndsItsDirectionBehindTheLastByte) {
  ring_.commit("last words");
  link_.end_sending();
  link_.pump();
  link_.pump();
  EXPECT_FALSE(network_.ended_writing);
  EXPECT_FALSE(link_.finished());
  EXPECT_TRUE(link_.watches_memory());
  copier_->finish(0);
  network_.takes = 4;
  link_.pump();
  EXPECT_EQ(network_.sent, "last");
  EXPECT_FALSE(network_.ended_writing);
  EXPECT_EQ(link_.traffic().tx_bytes, 4u);
  network_.takes = 100;
  link_.pump();
  EXPECT_EQ(network_.sent, "last words");
  EXPECT_TRUE(network_.ended_writing);
  EXPECT_TRUE(link_.finished());
}

TEST_F(StagedTcp, TellsOfThePeersEndBehindTheLastByte) {
  network_.arriving = "bye";
  network_.peer_ended = true;
  link_.pump();
  link_.pump();
  EXPECT_EQ(ended_at_, -1);
  EXPECT_EQ(rx_.committed, 0u);
  copier_->finish(0);
  link_.pump();
  EXPECT_EQ(rx_.take(), "bye");
  EXPECT_EQ(ended_at_, 3);
  EXPECT_FALSE(link_.watches_memory());
}

TEST_F(StagedTcp, ACopyThatFailsEndsTheConnectionByAReset) {
  ring_.commit("lost");
  link_.pump();
  copier_->fail(0);
  link_.pump();
  EXPECT_EQ(error_, EIO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(network_.sent, "");
  EXPECT_EQ(ring_.consumed, 0u);
  EXPECT_FALSE(link_.watches_memory());
}

TEST_F(StagedTcp, WhoTransmitsNoMoreKeepsNoChunksFromOthers) {
  ring_.commit(std::string(2 * kChunk, 'x'));
  link_.pump();
  ASSERT_EQ(copier_->started(), 2u);
  copier_->finish(0);
  network_.deaf = true;
  link_.pump();
  copier_->finish(1);
  for (int i = 0; i < 4; ++i) EXPECT_NE(pool_.take(StagingPool::Need::urgent), nullptr) << "chunk " << i;
}

TEST_F(StagedTcp, ACopyIntoTheRingThatFailsDeliversNothing) {
  network_.arriving = "lost";
  link_.pump();
  copier_->fail(0);
  link_.pump();
  EXPECT_EQ(error_, EIO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(rx_.committed, 0u);
}

TEST_F(StagedTcp, BytesDoNotPassTheRing) {
  char bytes[100] = {};
  network_.arriving = "abc";
  EXPECT_EQ(link_.transmit_past_ring(bytes, sizeof bytes), 0u);
  EXPECT_EQ(link_.deliver_past_ring(bytes, sizeof bytes), 0u);
}

/// A link that has its rings in host memory; the test is its other end.
struct HostLink final : Link {
  HostLink(std::unique_ptr<ByteStream> its_stream, ringbuf::ByteConsumer<> sends, ringbuf::ByteProducer<> receives)
      : stream(std::move(its_stream)), tx(sends), rx(receives) {}
  bool pump() override { return false; }
  void end_sending() override { sends_no_more = true; }
  void end_receiving() override {}
  void close() override {}
  bool finished() const override { return sends_no_more; }
  bool waits_for_credit() const override { return false; }
  Traffic traffic() const override { return {}; }

  std::string take() {
    const std::string text = text_of(tx.spans(tx.readable()));
    tx.release(text.size());
    return text;
  }
  void put(const std::string& text) {
    std::memcpy(rx.spans(text.size()).first.data, text.data(), text.size());
    rx.commit(text.size());
  }

  std::unique_ptr<ByteStream> stream;
  ringbuf::ByteConsumer<> tx;
  ringbuf::ByteProducer<> rx;
  bool sends_no_more = false;
};

class StagedLinkTest : public Staging, public LinkEvents {
 protected:
  StagedLinkTest() {
    auto stream = std::make_unique<FakeStream>(network_);
    StagedLink::Memory memory{rings_, std::make_shared<Segment>(platform_, kRing)};
    link_.emplace(pool_, slots_, 0, memory, *stream, *this);
    auto host = std::make_unique<HostLink>(std::move(stream), link_->tx(), link_->rx());
    host_ = host.get();
    link_->set_link(std::move(host));
    const table::RingSetup tx = slots_.tx_setup(0, rings_->callers_ring(1)),
                           rx = slots_.rx_setup(0, rings_->callers_ring(0));
    sender_ = {tx.memory, tx.committed, tx.consumed, tx.start};
    receiver_ = {rx.memory, rx.committed, rx.consumed, rx.start};
  }

  void send(const std::string& text) {
    ASSERT_GE(sender_.writable(), text.size());
    std::memcpy(sender_.spans(text.size()).first.data, text.data(), text.size());
    sender_.commit(text.size());
  }
  std::string receive() {
    const std::string text = text_of(receiver_.spans(receiver_.readable()));
    receiver_.release(text.size());
    return text;
  }

  void on_ended(std::uint64_t position) override { ended_at_ = static_cast<std::int64_t>(position); }
  void on_peer_deaf() override {}
  void on_failed(int error) override { error_ = error; }

  std::shared_ptr<Platform> platform_ = std::make_shared<HostPlatform>();
  SharedTable table_{platform_, 1, false};
  Slots slots_{table_};
  std::shared_ptr<Segment> rings_ = std::make_shared<Segment>(platform_, kRing, RingPlacement::device);
  FakeStream::Network network_;
  std::optional<StagedLink> link_;
  HostLink* host_ = nullptr;
  ringbuf::ByteProducer<> sender_;
  ringbuf::ByteConsumer<> receiver_;
  std::int64_t ended_at_ = -1;
  int error_ = 0;
};

TEST_F(StagedLinkTest, TheLinkSendsWhatHasBeenCopiedAndGivesSpaceBackInBothRings) {
  send(std::string(kChunk, 'a') + "b");
  link_->pump();
  ASSERT_EQ(copier_->started(), 2u);
  EXPECT_TRUE(link_->watches_memory());
  copier_->finish(1);
  link_->pump();
  EXPECT_EQ(host_->take(), "");  // the first is missing
  copier_->finish(0);
  link_->end_sending();
  link_->pump();
  EXPECT_TRUE(host_->sends_no_more);
  EXPECT_EQ(sender_.writable(), kRing - kChunk - 1);  // not before the link has no use for them
  EXPECT_EQ(host_->take(), std::string(kChunk, 'a') + "b");
  EXPECT_EQ(sender_.writable(), kRing);
  EXPECT_FALSE(link_->watches_memory());
}

TEST_F(StagedLinkTest, TheLinkHearsOfTheEndOnceItHasAll) {
  send("last");
  link_->end_sending();
  link_->pump();
  EXPECT_FALSE(host_->sends_no_more);
  copier_->finish(0);
  link_->pump();
  EXPECT_TRUE(host_->sends_no_more);
}

TEST_F(StagedLinkTest, CallersGetWhatHasBeenCopiedAndThenTheEnd) {
  host_->put("bye");
  link_->events().on_ended(3);
  link_->pump();
  EXPECT_EQ(receive(), "");
  EXPECT_EQ(ended_at_, -1);
  copier_->finish(0);
  link_->pump();
  EXPECT_EQ(receive(), "bye");
  EXPECT_EQ(ended_at_, 3);
  EXPECT_EQ(host_->rx.writable(), kRing);  // what callers have taken is the peer's credit
}

TEST_F(StagedLinkTest, AFailureIsToldBehindWhatCameBefore) {
  host_->put("before");
  link_->pump();
  link_->events().on_failed(ECONNRESET);
  link_->pump();
  EXPECT_EQ(error_, 0);
  copier_->finish(0);
  link_->pump();
  EXPECT_EQ(receive(), "before");
  EXPECT_EQ(error_, ECONNRESET);
}

TEST_F(StagedLinkTest, ACopyThatFailsEndsTheConnectionByAReset) {
  send("lost");
  link_->pump();
  copier_->fail(0);
  link_->pump();
  EXPECT_EQ(error_, EIO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(host_->take(), "");
  EXPECT_FALSE(link_->watches_memory());
}

TEST_F(StagedLinkTest, APositionThatCannotBeEndsTheConnectionByAReset) {
  sender_.commit(kRing + 1);
  link_->pump();
  EXPECT_EQ(error_, EPROTO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(copier_->started(), 0u);
}

TEST_F(StagedLinkTest, PassesTheEndOfTheRing) {
  Copier::Copy copy = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string text(kChunk / 2, static_cast<char>('a' + i % 26));
    host_->put(text);
    send(text);
    for (int turn = 0; turn < 3; ++turn) {
      link_->pump();
      while (copy < copier_->started()) copier_->finish(copy++);
    }
    ASSERT_EQ(receive(), text);
    ASSERT_EQ(host_->take(), text);
  }
}

TEST_F(StagedLinkTest, KeepsTheRingsUntilTheCopiesOfAConnectionThatIsGoneHaveEnded) {
  send("gone");
  link_->pump();
  const std::weak_ptr<Segment> rings = rings_;
  link_.reset();
  rings_.reset();
  pool_.collect();
  EXPECT_FALSE(rings.expired());
  copier_->finish(0);
  pool_.collect();
  EXPECT_TRUE(rings.expired());
}

TEST(HiddenMemory, FaultsAtOnce) {
  std::byte byte{};
  EXPECT_EQ(reveal(hide(&byte)), &byte);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(hide(&byte)), "");
}

TEST(MemoryCopier, CopiesNoSoonerThanItSays) {
  MemoryCopier copier;
  std::byte device{1}, host{0};
  const auto copy = copier.to_host(&host, {{hide(&device), 1}, {}});
  device = std::byte{2};
  EXPECT_EQ(copier.query(copy), Copier::State::busy);
  EXPECT_EQ(host, std::byte{0});
  EXPECT_EQ(copier.query(copy), Copier::State::done);
  EXPECT_EQ(host, std::byte{2});
}

}  // namespace
}  // namespace gpusock::proxy::staging_test
