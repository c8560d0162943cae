// The verbs link between two makers, on a NIC in memory: bytes arrive whatever the sizes of the rings, nothing is
// overwritten early, a peer that lies loses its own connection, and closing leaves no keys behind.
#include "host_proxy/links/network_probe.hpp"
#include "host_proxy/links/verbs/maker.hpp"
#include "host_proxy/links/verbs/message.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/table/table_memory.hpp"
#include "host_proxy/table/proxy_slots.hpp"
#include "tests/support/stream_pair.hpp"
#include "tests/unit/rdma/fake_cuda.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace gpusock::proxy::verbs {
namespace {

using fake::FakeCuda;
using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

struct NoSink final : ReadySink {
  void on_ready() override { ++news; }
  int news = 0;
};

struct Heard final : LinkEvents {
  void on_ended(std::uint64_t position) override { final_position = position; }
  void on_peer_read_shut_down() override { read_shut_down = true; }
  void on_failed(int error) override { failed = error; }
  std::optional<std::uint64_t> final_position;
  bool read_shut_down = false;
  int failed = 0;
};

/// What a peer's NIC writes.
struct Words {
  explicit Words(const Segment& segment)
      : arrived(&segment.header().rx_committed.value), credit(&segment.header().tx_consumed.value) {}
  std::uint64_t* arrived;
  std::uint64_t* credit;
};

/// The makers' clock.
std::uint64_t test_time_ns = 1;

/// Where a side's rings lie, and how the NIC gets them; kernels are its callers.
struct Where {
  RingPlacement placement = RingPlacement::host;
  bool gpudirect = true;
  const rdma::CudaDriver* gpu = nullptr;  ///< a GPU's memory; else the CPU device's
  bool peermem = false;
};
constexpr Where kHost{};
constexpr Where kDirect{RingPlacement::device};
constexpr Where kCopied{RingPlacement::device, false};

/// One side: what a context and its callers would do, on slot 0.
struct Side {
  /// `neighbour`: a side whose NIC this one shares.
  explicit Side(std::uint64_t ring_bytes, std::uint64_t start = 0, const Where& where = kHost,
                Side* neighbour = nullptr)
      : platform(make_platform(where)),
        table(platform, 1, false),
        segments(platform, {ring_bytes, ring_bytes}, 0, where.placement),
        copies(platform->make_copier(), 4096) {
    const table::TableView view = table.view(SideKind::host);
    *view.tx_committed = start + 1000;  // an earlier connection's
    *view.rx_consumed = start;
    slots.emplace(table);
    if (neighbour == nullptr) {
      own_maker.emplace(segments, DeviceRings(where.gpudirect, rdma::GpuMemoryPaths{where.gpu, where.peermem}));
    }
    maker = neighbour == nullptr ? &*own_maker : neighbour->maker;
    maker->poll(test_time_ns);
  }
  static std::shared_ptr<Platform> make_platform(const Where& where) {
    if (where.gpu == nullptr) return std::make_shared<HostPlatform>();
    return std::make_shared<fake::GpuPlatform>(*where.gpu);
  }

  void establish(std::unique_ptr<LinkSetup>& setup, std::unique_ptr<ByteStream> made) {
    segment = setup->rings().callers;
    stream = made.get();
    stream->sink = &sink;
    link = establish_link(*setup, *slots, 0, &copies, std::move(made), heard);
    setup.reset();
    const table::SocketSetup& words = slots->view().setups[0];
    tx = words.rings.tx.producer();
    rx = words.rings.rx.consumer();
  }

  /// Sends bytes of the test's stream as far as the ring has room.
  std::uint64_t send(std::uint64_t most) {
    const std::uint64_t bytes = std::min(most, tx.writable());
    const ringbuf::RingSpans to = tx.spans(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i)
      (i < to.first.bytes ? to.first.data[i] : to.second.data[i - to.first.bytes]) = next(sent++);
    tx.commit(bytes);
    return bytes;
  }
  /// Receives and checks them.
  std::uint64_t receive(std::uint64_t most) {
    const std::uint64_t bytes = std::min(most, rx.readable());
    const ringbuf::RingSpans from = rx.spans(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const std::byte got = i < from.first.bytes ? from.first.data[i] : from.second.data[i - from.first.bytes];
      if (got != next(received++)) ++wrong;
    }
    rx.release(bytes);
    return bytes;
  }
  static std::byte next(std::uint64_t at) { return static_cast<std::byte>((at * 0x9E3779B97F4A7C15u) >> 56); }

  /// As a caller who closes.
  void end() {
    link->end_sending();
    link->end_receiving();
    link->close();
  }

  bool step() {
    bool moved = maker->poll(test_time_ns);
    if (link != nullptr) moved |= link->progress();
    return moved;
  }

  std::shared_ptr<Platform> platform;
  TableMemory table;
  SegmentPool segments;
  DeviceCopies copies;
  std::optional<ProxySlots> slots;
  std::optional<VerbsMaker> own_maker;
  VerbsMaker* maker;
  NoSink sink;
  Heard heard;
  std::shared_ptr<Segment> segment;
  ByteStream* stream = nullptr;
  std::unique_ptr<Link> link;
  ringbuf::ByteProducer<> tx;
  ringbuf::ByteConsumer<> rx;
  std::uint64_t sent = 0, received = 0, wrong = 0;
};

class VerbsLinkTest : public testing::Test {
 protected:
  VerbsLinkTest() { fake::reset(); }
  ~VerbsLinkTest() override {
    EXPECT_FALSE(fake::nic().overflowed);
    offer_.reset();
    answer_.reset();
    a_.reset();
    b_.reset();
    EXPECT_EQ(fake::nic().regions, 0u) << "keys are left";
    EXPECT_EQ(fake::nic().pairs, 0u);
  }

  LinkRequest request(bool acceptor) const {
    LinkRequest made;
    made.acceptor = acceptor;
    made.kernels = kernels_;
    made.local = Endpoint::parse("10.77.0.1:7");
    made.peer = made.local;
    return made;
  }

  void connect(std::uint64_t a_bytes, std::uint64_t b_bytes, std::uint64_t start = 0, const Where& a_where = kHost) {
    connect(a_bytes, b_bytes, start, a_where, a_where);
  }
  void connect(std::uint64_t a_bytes, std::uint64_t b_bytes, std::uint64_t start, const Where& a_where,
               const Where& b_where) {
    a_.emplace(a_bytes, start, a_where);
    b_.emplace(b_bytes, start, b_where);
    connect(*a_, *b_);
  }

  /// Up to the acceptor's word that it can be used.
  void agree(Side& a, Side& b) {
    offer_ = a.maker->start(request(true), {}, a.sink);
    ASSERT_EQ(offer_->advance(), LinkSetup::State::ready) << offer_->failure().reason;
    answer_ = b.maker->start(request(false), offer_->message(), b.sink);
    ASSERT_EQ(answer_->advance(), LinkSetup::State::ready) << answer_->failure().reason;
    ASSERT_TRUE(offer_->take_answer(answer_->message())) << offer_->failure().reason;
  }

  void connect(Side& a, Side& b) {
    ASSERT_NO_FATAL_FAILURE(agree(a, b));
    a.maker->poll(test_time_ns);
    ASSERT_EQ(offer_->advance(), LinkSetup::State::ready) << offer_->failure().reason;
    out_ = std::make_shared<fake::MemoryStream::Wire>();
    auto [mine, theirs] = fake::make_streams(out_);
    a.establish(offer_, std::move(mine));
    b.establish(answer_, std::move(theirs));
  }

  void step_both(int times = 40) {
    for (int i = 0; i < times; ++i) {
      a_->step();
      b_->step();
    }
  }
  static Words words(Side& side) { return Words(*side.segment); }
  static std::size_t calls_of(const std::string& beginning, const std::vector<std::string>& calls = fake::nic().calls) {
    return static_cast<std::size_t>(std::count_if(
        calls.begin(), calls.end(), [&](const std::string& call) { return call.starts_with(beginning); }));
  }
  void expect_narrow_keys() {
    Message message;
    auto offer = a_->maker->start(request(true), {}, a_->sink);
    ASSERT_EQ(offer->message().size(), sizeof message);
    std::memcpy(&message, offer->message().data(), sizeof message);
    EXPECT_EQ(message.memory.ring_address,
              reinterpret_cast<std::uint64_t>(offer->rings().callers->proxy_rings().rx.data));
    const auto written = std::to_string(int{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
    const auto& calls = fake::nic().calls;
    ASSERT_GE(calls.size(), 4u);
    EXPECT_NE(std::find(calls.begin(), calls.end(), "reg_mr " + std::to_string(kWordsBytes) + " " + written),
              calls.end());
    EXPECT_NE(std::find(calls.begin(), calls.end(), "reg_mr 65536 " + written), calls.end());
    EXPECT_NE(std::find(calls.begin(), calls.end(), "reg_mr 65536 " + std::to_string(int{IBV_ACCESS_RELAXED_ORDERING})),
              calls.end());
  }

  bool kernels_ = true;
  std::optional<Side> a_, b_;
  std::unique_ptr<LinkSetup> offer_, answer_;
  std::shared_ptr<fake::MemoryStream::Wire> out_;  // from the first side's control channel
};

TEST_F(VerbsLinkTest, BytesArriveBothWaysWhateverTheRingsSizesAndWhereverTheyLie) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  const Where gpu{RingPlacement::device, true, &driver}, copied_gpu{RingPlacement::device, false, &driver};
  struct Case {
    std::uint64_t a_bytes, b_bytes;
    Where a = kHost, b = kHost;
  };
  for (const Case& one : {Case{4096, 65536},
                          {65536, 4096},
                          {8192, 8192},
                          {4096, 65536, kCopied, kCopied},
                          {4096, 65536, kDirect, kDirect},
                          {65536, 8192, gpu, gpu},
                          {8192, 4096, kDirect, kCopied},
                          {4096, 8192, kHost, gpu},
                          {4096, 8192, copied_gpu, gpu}}) {
    connect(one.a_bytes, one.b_bytes, ~std::uint64_t{0} - 5000, one.a, one.b);  // positions pass 2^64
    EXPECT_EQ(a_->segment->placement(), one.a.placement);
    EXPECT_EQ(b_->segment->placement(), one.b.placement);
    std::uint64_t size = 1;
    constexpr std::uint64_t kTotal = 1 << 20;
    for (int turns = 0; a_->received < kTotal || b_->received < kTotal; ++turns) {
      ASSERT_LT(turns, 100'000) << "stuck at " << a_->received << " and " << b_->received;
      size = size * 31 % 7919 + 1;
      a_->send(std::min(size, kTotal - a_->sent));
      b_->send(std::min(size * 3, kTotal - b_->sent));
      a_->step();
      b_->step();
      a_->receive(size * 2);
      b_->receive(size);
    }
    EXPECT_EQ(a_->wrong + b_->wrong, 0u);
    EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
  }
}

TEST_F(VerbsLinkTest, NothingIsGivenBackBeforeItsWriteIsComplete) {
  connect(4096, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  EXPECT_EQ(a_->send(4096), 4096u);
  step_both(4);
  EXPECT_EQ(a_->tx.writable(), 0u);
  EXPECT_TRUE(a_->maker->wants_polling());
  EXPECT_EQ(b_->rx.readable(), 0u);
  const int news = a_->sink.news;
  fake::work();
  EXPECT_EQ(b_->rx.readable(), 4096u) << "without any processor's work there";
  EXPECT_TRUE(a_->step());
  EXPECT_GT(a_->sink.news, news);
  EXPECT_EQ(a_->tx.writable(), 4096u);
  EXPECT_FALSE(a_->maker->wants_polling());
}

/// Its NIC has nothing to send, and so nothing to report.
TEST_F(VerbsLinkTest, ASenderThatWaitsForRoomIsToldOfALostNetwork) {
  for (const Where& where : {kHost, kCopied, kDirect}) {
    connect(4096, 4096, 0, where);
    std::uint64_t now_ns = 1;
    const auto pass = [&](std::uint64_t duration_ns) {
      for (const std::uint64_t until_ns = now_ns + duration_ns; now_ns < until_ns && a_->heard.failed == 0;) {
        step_both();
        now_ns = std::min({until_ns, a_->link->maintain(now_ns), b_->link->maintain(now_ns)});
      }
    };
    while (a_->send(4096) != 0) step_both();
    pass(100 * NetworkProbe::kLastNs);
    EXPECT_EQ(a_->heard.failed, 0) << "the peer does not read";
    out_->lost = true;
    pass(2 * NetworkProbe::kLastNs);
    EXPECT_EQ(a_->heard.failed, ECONNRESET);
    EXPECT_EQ(a_->link->maintain(now_ns), kNever);
  }
}

TEST_F(VerbsLinkTest, WithRingsInDeviceMemoryTheProxyLooksForWhatTheCardWrites) {
  for (const Where& where : {kCopied, kDirect}) {
    connect(4096, 4096, 77, where);
    a_->send(100);
    step_both();
    EXPECT_TRUE(b_->link->watches_memory());
    EXPECT_EQ(b_->receive(4096), 100u);
    a_->link->end_sending();
    step_both();
    EXPECT_EQ(b_->heard.final_position, 77u + 100u);
  }
}

TEST_F(VerbsLinkTest, TheCardGetsRingsInDeviceMemoryUnderTheNamesThatTheProxyHasForThem) {
  connect(4096, 8192, 0, kDirect);
  EXPECT_EQ(fake::nic().regions, 6u);
  EXPECT_EQ(a_->maker->device_rings().why_not(), "");
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message message;
  ASSERT_EQ(offer->message().size(), sizeof message);
  std::memcpy(&message, offer->message().data(), sizeof message);
  const Segment& rings = *offer->rings().callers;
  EXPECT_EQ(message.memory.ring_address, reinterpret_cast<std::uint64_t>(rings.proxy_rings().rx.data));
  EXPECT_NE(rings.proxy_rings().rx.data, rings.callers_rings().rx.data) << "the test's device memory is hidden";
  EXPECT_EQ(message.memory.words_address, reinterpret_cast<std::uint64_t>(Words(rings).arrived))
      << "words are in host memory, beside no copy";
}

TEST_F(VerbsLinkTest, WhereThatIsNotWantedRingsAreCopied) {
  connect(4096, 4096, 0, kCopied);
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message message;
  std::memcpy(&message, offer->message().data(), sizeof message);
  EXPECT_EQ(offer->rings().callers->placement(), RingPlacement::device);
  EXPECT_NE(message.memory.ring_address,
            reinterpret_cast<std::uint64_t>(offer->rings().callers->proxy_rings().rx.data));
  EXPECT_NE(message.memory.words_address, reinterpret_cast<std::uint64_t>(Words(*offer->rings().callers).arrived));
}

TEST_F(VerbsLinkTest, ACardThatDoesNotTakeDeviceMemoryHasItCopied) {
  fake::nic().naming_fails = EOPNOTSUPP;
  connect(4096, 65536, 0, kDirect);
  EXPECT_NE(a_->maker->device_rings().why_not(), "");
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(3000), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, AGpuThatNobodyGivesToTheCardHasItsRingsCopiedForBothReasons) {
  rdma::CudaDriver driver = FakeCuda::driver();
  driver.get_handle_for_address_range = nullptr;
  FakeCuda::ordering = rdma::kOrderingOwner;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  const std::string why = a_->maker->device_rings().why_not();
  EXPECT_NE(why.find("older than 11.7"), std::string::npos) << why;
  EXPECT_NE(why.find("nvidia_peermem"), std::string::npos) << why;
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(3000), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, AGpuOfWhichNobodySaysWhenItSeesCardsWritesHasItsRingsCopied) {
  const rdma::CudaDriver driver = FakeCuda::driver();  // neither ordered nor flushed
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver, true});
  EXPECT_EQ(calls_of("export", FakeCuda::calls), 0u);
  EXPECT_NE(a_->maker->device_rings().why_not(), "");
  a_->send(100);
  step_both();
  EXPECT_EQ(b_->receive(100), 100u);
}

TEST_F(VerbsLinkTest, HostThreadsOnAGpuHaveRingsInHostMemory) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  kernels_ = false;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  EXPECT_EQ(b_->segment->placement(), RingPlacement::host);
  a_->send(100);
  a_->step();
  EXPECT_FALSE(b_->link->watches_memory());
  step_both();
  EXPECT_EQ(b_->receive(100), 100u);
  EXPECT_TRUE(FakeCuda::calls.empty()) << FakeCuda::calls[0];
}

/// The NIC's writes are in the GPU's memory for sure only behind a flush: until then callers know nothing of them.
TEST_F(VerbsLinkTest, ThePositionIsPassedOnBehindTheFlush) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(65536, 4096, 500, {RingPlacement::device, true, &driver});
  step_both();
  EXPECT_EQ(calls_of("flush", FakeCuda::calls), 0u) << "nothing was written";
  std::uint64_t seen = ~std::uint64_t{0};
  FakeCuda::on_flush = [&] { seen = b_->rx.readable_at_a_glance(); };
  a_->send(3000);
  a_->step();
  EXPECT_EQ(*words(*b_).arrived, 3500u) << "the NIC has written";
  EXPECT_EQ(b_->rx.readable(), 0u) << "no kernel looks at the NIC's word";
  b_->step();
  EXPECT_EQ(seen, 0u);
  EXPECT_EQ(b_->receive(4096), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
  step_both(4);
  EXPECT_EQ(calls_of("flush 0 100", FakeCuda::calls), 1u) << "once for what has arrived";
}

TEST_F(VerbsLinkTest, AGpuThatSeesCardsWritesInOrderIsNotFlushed) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  FakeCuda::ordering = rdma::kOrderingOwner;
  connect(65536, 4096, 0, {RingPlacement::device, true, &driver});
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(4096), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
  EXPECT_EQ(calls_of("export", FakeCuda::calls), 4u) << "the NIC has the GPU's memory";
  EXPECT_EQ(calls_of("flush", FakeCuda::calls), 0u);
}

TEST_F(VerbsLinkTest, AFlushThatFailsEndsTheConnectionAndTellsCallersNothing) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(65536, 4096, 0, {RingPlacement::device, true, &driver});
  FakeCuda::on_flush = [] { FakeCuda::result = 719; };
  a_->send(100);
  step_both(2);
  EXPECT_EQ(b_->heard.failed, EIO);
  EXPECT_EQ(b_->rx.readable(), 0u);
  EXPECT_FALSE(b_->link->watches_memory());
}

TEST_F(VerbsLinkTest, ClosingInTheMiddleRevokesTheKeysBeforeTheGpusMemoryGoes) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(1000);
  a_->step();
  auto& calls = fake::nic().calls;
  calls.clear();
  a_->segment.reset();  // as a connection gives it up when it is over
  a_->link.reset();
  EXPECT_EQ(calls, (std::vector<std::string>{"destroy_qp", "dereg_mr", "dereg_mr", "dereg_mr", "free_device"}));
  fake::work();
  b_->step();
  EXPECT_EQ(b_->heard.failed, ECONNRESET);
}

TEST_F(VerbsLinkTest, WhatHasArrivedBeforeAFailureIsPassedOn) {
  connect(4096, 65536, 0, kDirect);
  step_both(2);
  a_->send(1000);
  a_->step();
  a_->link.reset();
  b_->step();
  EXPECT_EQ(b_->heard.failed, ECONNRESET);
  EXPECT_EQ(b_->receive(4096), 1000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, TheBytesAreThereBeforeThePosition) {
  connect(65536, 4096);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(3000);
  b_->receive(0);
  a_->step();
  while (fake::work(1) == 1) b_->receive(4096);  // after each single write
  EXPECT_EQ(b_->received, 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, NoMoreIsWrittenThanThePeerHasRoomFor) {
  connect(65536, 4096);
  step_both(2);
  a_->send(10'000);
  step_both();
  EXPECT_EQ(b_->rx.readable(), 4096u);
  EXPECT_TRUE(a_->link->watches_memory()) << "credit wakes nobody";
  b_->receive(1);
  step_both();
  EXPECT_EQ(b_->rx.readable(), 4096u) << "a sender that waits gets credit for one byte";
}

TEST_F(VerbsLinkTest, CreditForLittleIsGivenOnceNothingElseHappens) {
  connect(65536, 65536);
  a_->send(100);
  step_both(3);
  b_->receive(100);
  b_->step();
  EXPECT_EQ(*words(*a_).credit, 0u);
  EXPECT_TRUE(b_->link->watches_memory());
  step_both();
  EXPECT_EQ(*words(*a_).credit, 100u);
  EXPECT_FALSE(b_->link->watches_memory());
}

TEST_F(VerbsLinkTest, CreditForLittleIsGivenAtOnceToAPeerThatHasUsedAllUp) {
  connect(65536, 4096);
  step_both(2);
  EXPECT_EQ(a_->send(4196), 4196u);
  step_both(2);
  b_->receive(100);
  step_both(2);
  EXPECT_EQ(b_->receive(4096), 4096u);
}

/// The NIC writes while the proxy sleeps; nobody but callers can say that there is room again.
TEST_F(VerbsLinkTest, CallersMustSayWhatTheyConsumeBeforeAnythingHasArrived) {
  connect(8192, 8192);
  step_both();
  EXPECT_TRUE(b_->link->waits_for_credit());
  EXPECT_EQ(a_->send(8192), 8192u);
  step_both();
  EXPECT_TRUE(b_->link->waits_for_credit());
  b_->link->end_receiving();
  EXPECT_FALSE(b_->link->waits_for_credit());
}

TEST_F(VerbsLinkTest, TheEndIsToldBehindTheBytesAndClosingIsOrderly) {
  connect(65536, 65536, 77);
  a_->send(5000);
  a_->link->end_sending();
  step_both(3);
  ASSERT_TRUE(b_->heard.final_position);
  EXPECT_EQ(*b_->heard.final_position, 77u + 5000u);
  EXPECT_EQ(b_->receive(5000), 5000u);
  b_->send(10);
  b_->end();
  step_both();
  EXPECT_TRUE(b_->link->can_destroy());
  EXPECT_TRUE(a_->heard.read_shut_down);
  b_->link.reset();
  a_->step();
  EXPECT_EQ(a_->receive(10), 10u);
  EXPECT_EQ(a_->heard.failed, 0);
  EXPECT_EQ(a_->wrong + b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, WhoClosesGoesWhenThePeerHasHeardIt) {
  connect(65536, 65536);
  step_both(2);
  b_->end();
  b_->step();
  EXPECT_FALSE(b_->link->can_destroy())
      << "what the peer writes now would reset the connection, and with it what it has not heard yet";
  step_both();
  EXPECT_TRUE(b_->link->can_destroy()) << "though the peer's caller has not closed";
  EXPECT_EQ(a_->heard.final_position, 0u);
  EXPECT_TRUE(a_->heard.read_shut_down);
  EXPECT_EQ(a_->heard.failed, 0);
}

TEST_F(VerbsLinkTest, BothMayCloseAtOnce) {
  connect(65536, 65536);
  step_both(2);
  for (Side* side : {&*a_, &*b_}) side->end();
  step_both();
  EXPECT_TRUE(a_->link->can_destroy());
  EXPECT_TRUE(b_->link->can_destroy());
  EXPECT_EQ(a_->heard.failed + b_->heard.failed, 0);
}

TEST_F(VerbsLinkTest, NothingIsUnderWayWhenALinkMayGo) {
  connect(65536, 4096);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(10'000);
  b_->send(3000);
  for (Side* side : {&*a_, &*b_}) side->link->end_sending();
  bool closed = false;
  for (int turn = 0; !a_->link->can_destroy() || !b_->link->can_destroy(); ++turn) {
    ASSERT_LT(turn, 10'000);
    fake::work(1);
    step_both(1);
    a_->receive(700);
    b_->receive(700);
    if (closed || b_->received != 10'000 || a_->received != 3000) continue;
    for (Side* side : {&*a_, &*b_}) side->end();
    closed = true;
  }
  EXPECT_EQ(fake::work(), 0u) << "a write that comes now finds keys and memory of other connections";
  EXPECT_EQ(a_->heard.failed + b_->heard.failed, 0);
  EXPECT_EQ(a_->wrong + b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, TheEndWaitsUntilAllHasBeenAcknowledged) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(10);
  a_->end();
  step_both();
  EXPECT_FALSE(a_->link->finished());
  EXPECT_FALSE(b_->heard.final_position);
  fake::work();
  step_both();
  EXPECT_TRUE(a_->link->finished());
  EXPECT_EQ(b_->heard.final_position, 10u);
}

TEST_F(VerbsLinkTest, APairThatBreaksWhenThePeerHasClosedIsNoFailure) {
  connect(65536, 65536);
  step_both(2);
  b_->end();
  step_both();
  ASSERT_TRUE(b_->link->can_destroy());
  b_->link.reset();
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  a_->send(100);
  a_->end();
  step_both(4);
  EXPECT_EQ(a_->heard.failed, 0);
  EXPECT_TRUE(a_->link->finished());
}

TEST_F(VerbsLinkTest, WhatIsUnderWayToAPeerThatReadsNoMoreIsNotGivenBack) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(1000);
  a_->step();
  b_->link->end_receiving();
  b_->step();
  a_->step();
  EXPECT_TRUE(a_->heard.read_shut_down);
  EXPECT_EQ(a_->tx.writable(), 64536u);
  fake::work();
  a_->step();
  EXPECT_EQ(a_->tx.writable(), 65536u);
}

TEST_F(VerbsLinkTest, ABrokenPairResetsTheConnection) {
  connect(65536, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(100);
  a_->step();
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  step_both(2);
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
  EXPECT_FALSE(a_->maker->wants_polling());
}

TEST_F(VerbsLinkTest, ThePeersEndOfTheStreamBreakingResetsTheConnection) {
  connect(65536, 65536);
  step_both(2);
  b_->link.reset();
  a_->step();
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
}

TEST_F(VerbsLinkTest, ALyingPositionEndsThatConnection) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    step_both(2);
    *words(*b_).arrived += 4097;
    step_both(1);
    EXPECT_EQ(b_->heard.failed, EPROTO);
    EXPECT_EQ(b_->rx.readable(), where.placement == RingPlacement::device ? 0u : ringbuf::kRingCorrupt)
        << "a lie is not passed on";
  }
}

/// There is room for it, but the peer cannot know that yet.
TEST_F(VerbsLinkTest, ALyingPeerThatDoesNotWaitForCreditLosesThatConnection) {
  connect(65536, 4096);
  a_->send(100);
  step_both(2);
  b_->receive(100);
  *words(*b_).arrived = 4097;
  b_->step();
  EXPECT_EQ(b_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, APositionThatGoesBackEndsThatConnection) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    a_->send(100);
    step_both(2);
    b_->receive(100);
    *words(*b_).arrived -= 1;
    step_both(1);
    EXPECT_EQ(b_->heard.failed, EPROTO);
  }
}

TEST_F(VerbsLinkTest, APositionThatGoesBackInDeviceMemoryIsNotPassedOn) {
  connect(65536, 4096, 0, kDirect);
  a_->send(100);
  step_both(2);
  *words(*b_).arrived -= 1;
  step_both(1);
  EXPECT_EQ(b_->heard.failed, EPROTO);
  EXPECT_EQ(b_->rx.readable(), 100u);
}

TEST_F(VerbsLinkTest, LyingCreditEndsThatConnection) {
  connect(65536, 65536);
  a_->send(100);
  step_both(2);
  *words(*a_).credit = 101;
  a_->step();
  EXPECT_EQ(a_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, CreditThatGoesBackEndsThatConnection) {
  connect(65536, 65536);
  a_->send(100);
  step_both(2);
  b_->receive(100);
  step_both();
  *words(*a_).credit = 99;
  a_->step();
  EXPECT_EQ(a_->heard.failed, EPROTO);
}

TEST_F(VerbsLinkTest, KeysCoverOneRingAndItsWords) {
  for (const Where& where : {kHost, kDirect}) {
    connect(65536, 4096, 0, where);
    expect_narrow_keys();
    fake::nic().calls.clear();
  }
}

TEST_F(VerbsLinkTest, AFullSendQueueLosesNothingAndDisturbsNobody) {
  constexpr std::size_t kNeighbours = 20;
  fake::nic().cqe_max = 256;  // four queue pairs to a completion queue
  connect(65536, 65536);
  std::vector<std::unique_ptr<Side>> as, bs;
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    as.push_back(std::make_unique<Side>(65536, i, kHost, &*a_));
    bs.push_back(std::make_unique<Side>(65536, i, kHost, &*b_));
    ASSERT_NO_FATAL_FAILURE(connect(*as[i], *bs[i]));
  }
  step_both();
  for (const std::uint32_t number : fake::pair_numbers()) fake::nic().stuck.insert(number);
  for (int i = 0; i < 200; ++i) {  // of bytes that each go by themselves
    a_->send(1);
    a_->step();
  }
  constexpr std::uint32_t kRequestsPerWrite = 2;  // so many places a write needs
  EXPECT_GT(fake::nic().outstanding_max, rdma::QueuePair::kDepth - kRequestsPerWrite) << "it is full";
  EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
  EXPECT_EQ(a_->heard.failed, 0);
  const std::uint32_t full = *fake::nic().stuck.begin();  // the first that was made is the first acceptor's
  fake::nic().stuck = {full};

  constexpr std::uint64_t kTotal = 30'000;
  const auto done = [&](const std::unique_ptr<Side>& side) { return side->received == kTotal; };
  for (int turns = 0; !std::all_of(as.begin(), as.end(), done) || !std::all_of(bs.begin(), bs.end(), done); ++turns) {
    ASSERT_LT(turns, 10'000);
    fake::work();
    for (std::size_t i = 0; i < kNeighbours; ++i) {
      as[i]->send(std::min<std::uint64_t>(701, kTotal - as[i]->sent));
      bs[i]->send(std::min<std::uint64_t>(307, kTotal - bs[i]->sent));
      as[i]->step();
      bs[i]->step();
      as[i]->receive(1000);
      bs[i]->receive(1000);
    }
  }
  for (std::size_t i = 0; i < kNeighbours; ++i) EXPECT_EQ(as[i]->wrong + bs[i]->wrong, 0u);
  EXPECT_EQ(b_->received, 0u);

  fake::nic().stuck.clear();
  for (int i = 0; i < 20; ++i) {
    fake::work();
    step_both(1);
    b_->receive(65536);
  }
  EXPECT_EQ(b_->received, 200u) << "what found the queue full came later";
  EXPECT_EQ(b_->wrong, 0u);
  EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
}

TEST_F(VerbsLinkTest, AFullSendQueueThatBreaksIsItsOwnLoss) {
  connect(65536, 65536);
  Side near(65536, 0, kHost, &*a_), far(65536, 0, kHost, &*b_);
  ASSERT_NO_FATAL_FAILURE(connect(near, far));
  step_both();
  const std::uint32_t full = fake::pair_numbers().front();
  fake::nic().stuck = {full};
  for (int i = 0; i < 200; ++i) {
    a_->send(1);
    a_->step();
  }
  near.send(2000);
  near.step();
  fake::break_pair(full, IBV_WC_RETRY_EXC_ERR);  // and all that it holds is flushed into the queue that they share
  for (int i = 0; i < 40; ++i) {
    a_->step();
    near.step();
    far.step();
    far.receive(4096);
  }
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
  EXPECT_EQ(near.heard.failed, 0);
  EXPECT_EQ(far.received, 2000u);
  EXPECT_EQ(far.wrong, 0u);
}

TEST_F(VerbsLinkTest, ALinkThatCarriesNothingFailsInTime) {
  a_.emplace(4096);
  b_.emplace(4096);
  fake::nic().holds_work = true;
  ASSERT_NO_FATAL_FAILURE(agree(*a_, *b_));
  EXPECT_EQ(offer_->advance(), LinkSetup::State::waiting);
  EXPECT_TRUE(a_->maker->wants_polling()) << "the NIC tells nobody";
  test_time_ns += kTrialNs - 1;
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 0);
  test_time_ns += 1;
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 1);
  EXPECT_EQ(offer_->advance(), LinkSetup::State::failed);
  EXPECT_EQ(offer_->failure().error, EHOSTUNREACH);
  EXPECT_NE(offer_->failure().reason.find("no acknowledgement for 2000 ms"), std::string::npos)
      << offer_->failure().reason;
  EXPECT_FALSE(a_->maker->wants_polling());
}

TEST_F(VerbsLinkTest, ALinkWhosePathIsBrokenFailsAtOnce) {
  a_.emplace(4096);
  b_.emplace(4096);
  fake::nic().holds_work = true;
  ASSERT_NO_FATAL_FAILURE(agree(*a_, *b_));
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 1);
  EXPECT_EQ(offer_->advance(), LinkSetup::State::failed);
  EXPECT_NE(offer_->failure().reason.find("transport retry counter exceeded"), std::string::npos)
      << offer_->failure().reason;
}

TEST_F(VerbsLinkTest, WhatCannotBeSetUpSaysWhy) {
  a_.emplace(65536);
  fake::nic().registering_fails = ENOMEM;
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  EXPECT_EQ(offer->advance(), LinkSetup::State::failed);
  EXPECT_EQ(offer->failure().error, ENOMEM);
  EXPECT_NE(offer->failure().reason.find("ulimit -l"), std::string::npos) << offer->failure().reason;
  LinkRequest elsewhere = request(true);
  elsewhere.local = Endpoint::parse("10.77.0.2:7");
  offer = a_->maker->start(elsewhere, {}, a_->sink);
  EXPECT_EQ(offer->failure().error, EADDRNOTAVAIL);
}

/// What a lying peer may say, and whether it is taken.
TEST_F(VerbsLinkTest, WhatCannotBeIsNotTaken) {
  b_.emplace(65536);
  a_.emplace(65536);
  const auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message good;
  std::memcpy(&good, offer->message().data(), sizeof good);
  const auto refused = [&](auto change, std::size_t bytes = sizeof(Message)) {
    Message bad = good;
    change(bad);
    const auto view = std::as_bytes(std::span(&bad, 1));
    auto answer = b_->maker->start(request(false), view.first(bytes), b_->sink);
    return answer->advance() == LinkSetup::State::failed && answer->failure().error == EPROTO &&
           !answer->failure().reason.empty();
  };
  EXPECT_FALSE(refused([](Message&) {}));
  EXPECT_TRUE(refused([](Message&) {}, sizeof(Message) - 1));
  EXPECT_TRUE(refused([](Message&) {}, 0));
  EXPECT_TRUE(refused([](Message& m) { m.version = Message::kVersion + 1; }));
  EXPECT_TRUE(refused([](Message& m) { m.pair_number = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.pair_number = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 6; }));
  EXPECT_TRUE(refused([](Message& m) { m.ethernet = 2; }));
  EXPECT_TRUE(refused([](Message& m) { m.gid = {}; }));
  EXPECT_TRUE(refused([](Message& m) { m.gid[0] = 0xff; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = 65537; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = kRingBytesMax * 2; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_address = ~std::uint64_t{0} - 65534; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.words_address += 4; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.words_address = ~std::uint64_t{0} - 7; }));
}

TEST_F(VerbsLinkTest, RecordsNeedRingsOfTheSameSize) {
  a_.emplace(65536);
  b_.emplace(65536);
  const auto offer = a_->maker->start(request(true), {}, a_->sink);
  LinkRequest records = request(false);
  records.type = SocketType::seqpacket;
  records.record_ring_bytes = 4096;
  EXPECT_EQ(b_->maker->start(records, offer->message(), b_->sink)->advance(), LinkSetup::State::failed);
  records.record_ring_bytes = 65536;
  EXPECT_EQ(b_->maker->start(records, offer->message(), b_->sink)->advance(), LinkSetup::State::ready);
}

}  // namespace
}  // namespace gpusock::proxy::verbs
