#pragma once
/// @file The verbs link between two makers, on a NIC in memory.

#include "host_proxy/links/verbs/maker.hpp"
#include "host_proxy/links/verbs/message.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/table/proxy_slots.hpp"
#include "host_proxy/table/table_memory.hpp"
#include "tests/support/stream_pair.hpp"
#include "tests/unit/rdma/fake_cuda.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::proxy::verbs::link_test {

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
inline std::uint64_t test_time_ns = 1;

/// Where a side's rings lie, and how the NIC gets them; kernels are its callers.
struct Where {
  RingPlacement placement = RingPlacement::host;
  bool gpudirect = true;
  const rdma::CudaDriver* gpu = nullptr;  ///< a GPU's memory; else the CPU device's
  bool peermem = false;
};
inline constexpr Where kHost{};
inline constexpr Where kDirect{RingPlacement::device};
inline constexpr Where kCopied{RingPlacement::device, false};

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
    link = establish_link(*setup, *slots, {}, &copies, std::move(made), heard);
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

}  // namespace gpusock::proxy::verbs::link_test
