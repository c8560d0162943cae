// Rings in device memory: their words move only once the copies have ended, whenever and in whatever order these do.
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/memory_copier.hpp"
#include "host_proxy/links/mirrored_link.hpp"
#include "host_proxy/links/tcp/tcp_link.hpp"
#include "host_proxy/table/proxy_slots.hpp"
#include "host_proxy/table/table_memory.hpp"
#include "tests/unit/host_proxy/fake_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::proxy::mirror_test {
namespace {

using fake::FakeStream;

constexpr std::uint64_t kRing = 4096;
constexpr std::size_t kCopyBytes = 512;

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

std::string text_of(const ringbuf::RingSpans& spans) {
  return {reinterpret_cast<const char*>(spans.first.data), spans.first.bytes};
}

/// A link that has its rings in host memory; the test is its other end.
struct HostLink final : Link {
  HostLink(std::unique_ptr<ByteStream> its_stream, ringbuf::ByteConsumer<> sends, ringbuf::ByteProducer<> receives)
      : stream(std::move(its_stream)), tx(sends), rx(receives) {}
  bool progress() override { return false; }
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

/// Callers with rings in device memory, and a link that has others in host memory.
class Mirrored : public testing::Test, public LinkEvents {
 protected:
  Mirrored() {
    auto stream = std::make_unique<FakeStream>(network_);
    const auto host = std::make_shared<Segment>(platform_, kRing);
    const auto rings_of = [&](const RingMemories& memory) { return slots_.rings(0, memory.tx, memory.rx); };
    link_.emplace(copies_, ConnectionRings{rings_, host, nullptr}, rings_of(rings_->proxy_rings()),
                  rings_of(host->proxy_rings()), *stream, *this);
    stream_ = std::move(stream);
    const table::RingPair callers = rings_of(rings_->callers_rings());
    sender_ = callers.tx.producer();
    receiver_ = callers.rx.consumer();
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
  void on_peer_read_shut_down() override {}
  void on_sending_failed(int error) override { sending_error_ = error; }
  void on_failed(int error) override { error_ = error; }

  ManualCopier* copier_ = new ManualCopier;
  DeviceCopies copies_{std::unique_ptr<Copier>(copier_), kCopyBytes};
  std::shared_ptr<Platform> platform_ = std::make_shared<HostPlatform>();
  TableMemory table_{platform_, 1, false};
  ProxySlots slots_{table_};
  std::shared_ptr<Segment> rings_ = std::make_shared<Segment>(platform_, kRing, RingPlacement::device);
  FakeStream::Network network_;
  std::unique_ptr<ByteStream> stream_;
  std::optional<MirroredLink> link_;
  ringbuf::ByteProducer<> sender_;
  ringbuf::ByteConsumer<> receiver_;
  std::int64_t ended_at_ = -1;
  int sending_error_ = 0;
  int error_ = 0;
};

class MirroredTcp : public Mirrored {
 protected:
  MirroredTcp() {
    link_->set_link(std::make_unique<TcpLink>(std::move(stream_), link_->rings().tx.consumer(),
                                              link_->rings().rx.producer(), link_->events()));
  }
};

TEST_F(MirroredTcp, EndsItsDirectionAfterTheLastByte) {
  send("last words");
  link_->end_sending();
  link_->progress();
  link_->progress();
  EXPECT_FALSE(network_.ended_writing);
  EXPECT_FALSE(link_->finished());
  EXPECT_TRUE(link_->watches_memory());
  copier_->finish(0);
  network_.takes = 4;
  link_->progress();
  EXPECT_EQ(network_.sent, "last");
  EXPECT_FALSE(network_.ended_writing);
  EXPECT_EQ(link_->traffic().tx_bytes, 4u);
  EXPECT_EQ(sender_.writable(), kRing - 6);  // what is on the network is given back
  network_.takes = 100;
  link_->progress();
  EXPECT_EQ(network_.sent, "last words");
  EXPECT_TRUE(network_.ended_writing);
  EXPECT_TRUE(link_->finished());
}

TEST_F(MirroredTcp, TellsOfThePeersEndAfterTheLastByte) {
  network_.arriving = "bye";
  network_.peer_ended = true;
  link_->progress();
  link_->progress();
  EXPECT_EQ(ended_at_, -1);
  EXPECT_EQ(receive(), "");
  copier_->finish(0);
  link_->progress();
  EXPECT_EQ(receive(), "bye");
  EXPECT_EQ(ended_at_, 3);
  EXPECT_FALSE(link_->watches_memory());
}

TEST_F(MirroredTcp, SendersHearOfABrokenConnectionAtOnceAndReadersAfterTheLastByte) {
  network_.arriving = "before";
  link_->progress();
  network_.read_shut_down = true;
  send("lost");
  link_->progress();
  copier_->finish(1);
  link_->progress();
  EXPECT_EQ(sending_error_, EPIPE);
  network_.peer_ended = true;
  link_->progress();
  EXPECT_EQ(error_, 0);
  copier_->finish(0);
  link_->progress();
  EXPECT_EQ(receive(), "before");
  EXPECT_EQ(error_, EPIPE);
}

TEST_F(MirroredTcp, ClosingWithUnreadInputResetsThePeerWhetherOrNotItWasCopied) {
  network_.arriving = "unread";
  link_->progress();
  EXPECT_TRUE(link_->refuse_input());
  copier_->finish(0);
  link_->progress();
  EXPECT_TRUE(link_->refuse_input());
  EXPECT_EQ(receive(), "unread");
  EXPECT_FALSE(link_->refuse_input());
}

TEST_F(MirroredTcp, BytesDoNotPassTheRing) {
  char bytes[100] = {};
  network_.arriving = "abc";
  using Direction = detail::PastRing::Direction;
  EXPECT_EQ(link_->move_past_ring({Direction::send, bytes, sizeof bytes}), 0u);
  EXPECT_EQ(link_->move_past_ring({Direction::receive, bytes, sizeof bytes}), 0u);
}

TEST_F(MirroredTcp, PutsNoMoreThanTheRingHasRoomForWithWhatIsOnItsWay) {
  network_.arriving = std::string(2 * kRing, 'x');
  for (Copier::Copy copy = 0; copy < kRing / kCopyBytes; ++copy) {
    link_->progress();
    copier_->finish(copy);
  }
  link_->progress();
  EXPECT_EQ(copier_->started(), kRing / kCopyBytes);
  EXPECT_EQ(network_.arriving.size(), kRing);
  EXPECT_TRUE(link_->waits_for_credit());
  EXPECT_EQ(receiver_.readable(), kRing);
}

class MirroredLinkTest : public Mirrored {
 protected:
  MirroredLinkTest() {
    auto host = std::make_unique<HostLink>(std::move(stream_), link_->rings().tx.consumer(),
                                           link_->rings().rx.producer());
    host_ = host.get();
    link_->set_link(std::move(host));
  }

  HostLink* host_ = nullptr;
};

TEST_F(MirroredLinkTest, TheLinkSendsWhatHasBeenCopiedAndGivesSpaceBackInBothRings) {
  send(std::string(kCopyBytes, 'a') + "b");
  link_->progress();
  ASSERT_EQ(copier_->started(), 2u);
  EXPECT_TRUE(link_->watches_memory());
  copier_->finish(1);
  link_->progress();
  EXPECT_EQ(host_->take(), "");  // the first is missing
  copier_->finish(0);
  link_->end_sending();
  link_->progress();
  EXPECT_TRUE(host_->sends_no_more);
  EXPECT_EQ(sender_.writable(), kRing - kCopyBytes - 1);  // not before the link has no use for them
  EXPECT_EQ(host_->take(), std::string(kCopyBytes, 'a') + "b");
  EXPECT_EQ(sender_.writable(), kRing);
  EXPECT_FALSE(link_->watches_memory());
}

TEST_F(MirroredLinkTest, TheLinkHearsOfTheEndOnceItHasAll) {
  send("last");
  link_->end_sending();
  link_->progress();
  EXPECT_FALSE(host_->sends_no_more);
  copier_->finish(0);
  link_->progress();
  EXPECT_TRUE(host_->sends_no_more);
}

TEST_F(MirroredLinkTest, CallersGetWhatHasBeenCopiedAndThenTheEnd) {
  host_->put("bye");
  link_->events().on_ended(3);
  link_->progress();
  EXPECT_EQ(receive(), "");
  EXPECT_EQ(ended_at_, -1);
  copier_->finish(0);
  link_->progress();
  EXPECT_EQ(receive(), "bye");
  EXPECT_EQ(ended_at_, 3);
  EXPECT_EQ(host_->rx.writable(), kRing);  // what callers have taken is the peer's credit
}

TEST_F(MirroredLinkTest, AFailureIsToldAfterWhatCameBefore) {
  host_->put("before");
  link_->progress();
  link_->events().on_failed(ECONNRESET);
  link_->progress();
  EXPECT_EQ(error_, 0);
  copier_->finish(0);
  link_->progress();
  EXPECT_EQ(receive(), "before");
  EXPECT_EQ(error_, ECONNRESET);
}

TEST_F(MirroredLinkTest, ACopyThatFailsEndsTheConnectionByAReset) {
  send("lost");
  link_->progress();
  copier_->fail(0);
  link_->progress();
  EXPECT_EQ(error_, EIO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(host_->take(), "");
  EXPECT_FALSE(link_->watches_memory());
}

TEST_F(MirroredLinkTest, APositionThatCannotBeEndsTheConnectionByAReset) {
  sender_.commit(kRing + 1);
  link_->progress();
  EXPECT_EQ(error_, EPROTO);
  EXPECT_TRUE(network_.reset);
  EXPECT_EQ(copier_->started(), 0u);
}

TEST_F(MirroredLinkTest, PassesTheEndOfTheRing) {
  Copier::Copy copy = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string text(kCopyBytes / 2, static_cast<char>('a' + i % 26));
    host_->put(text);
    send(text);
    for (int turn = 0; turn < 3; ++turn) {
      link_->progress();
      while (copy < copier_->started()) copier_->finish(copy++);
    }
    ASSERT_EQ(receive(), text);
    ASSERT_EQ(host_->take(), text);
  }
}

TEST_F(MirroredLinkTest, KeepsTheRingsUntilTheCopiesOfAConnectionThatIsGoneHaveEnded) {
  send("gone");
  link_->progress();
  const std::weak_ptr<Segment> rings = rings_;
  link_.reset();
  rings_.reset();
  copies_.collect();
  EXPECT_FALSE(rings.expired());
  copier_->finish(0);
  copies_.collect();
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
}  // namespace gpusock::proxy::mirror_test
