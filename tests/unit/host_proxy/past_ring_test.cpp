// What passes the ring leaves its positions aligned, however few bytes the network takes or has: an odd rest is sent
// before the ring's bytes, and one that arrived comes by the ring.
#include "host_proxy/links/tcp/tcp_link.hpp"
#include "tests/support/ring_storage.hpp"
#include "tests/unit/host_proxy/fake_stream.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace gpusock::proxy::past_ring_test {
namespace {

constexpr std::uint64_t kRing = 4096;
constexpr std::size_t kBytes = 64 << 10;

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

class PastRing : public testing::Test, public LinkEvents {
 protected:
  using Direction = detail::PastRing::Direction;

  std::uint64_t send(std::string& data) { return link_.move_past_ring({Direction::send, data.data(), data.size()}); }
  std::uint64_t receive(std::string& data) {
    return link_.move_past_ring({Direction::receive, data.data(), data.size()});
  }
  void put_into_ring(const std::string& text) {
    std::memcpy(sender_.spans(text.size()).first.data, text.data(), text.size());
    sender_.commit(text.size());
  }
  std::string take_from_ring() {
    const ringbuf::RingSpans spans = receiver_.spans(receiver_.readable());
    const std::string text(reinterpret_cast<const char*>(spans.first.data), spans.first.bytes);
    receiver_.release(text.size());
    return text;
  }

  void on_ended(std::uint64_t position) override { ended_at_ = position; }
  void on_peer_read_shut_down() override {}
  void on_failed(int error) override { error_ = error; }

  fake::FakeStream::Network network_;
  ringbuf::RingStorage tx_{kRing}, rx_{kRing};
  ringbuf::ByteProducer<> sender_ = tx_.producer();
  ringbuf::ByteConsumer<> receiver_ = rx_.consumer();
  std::uint64_t ended_at_ = ~std::uint64_t{0};
  int error_ = 0;
  TcpLink link_{std::make_unique<fake::FakeStream>(network_), tx_.consumer(), rx_.producer(), *this};
};

TEST_F(PastRing, ASendThatTheNetworkTakesInPartIsAWholeNumberOfUnits) {
  for (const std::size_t takes : {1, 4, 15, 16, 17, 1001, 30'003}) {
    std::string data = pattern(kBytes);
    network_.sent.clear();
    network_.takes = takes;
    const std::uint64_t moved = send(data);
    EXPECT_EQ(moved, (takes + 15) / 16 * 16) << takes;
    EXPECT_EQ(network_.sent.size(), takes);
    put_into_ring("ring");
    const std::string wanted = data.substr(0, moved) + "ring";
    data.assign(kBytes, '-');  // the call has returned: its memory is the caller's again
    network_.takes = 3;        // the rest itself is taken in parts
    link_.progress();
    network_.takes = ~std::size_t{0};
    link_.progress();
    EXPECT_TRUE(network_.sent == wanted) << takes;
  }
}

TEST_F(PastRing, ARestIsNotOvertaken) {
  std::string data = pattern(kBytes);
  network_.takes = 5;
  EXPECT_EQ(send(data), 16u);
  network_.takes = 100;
  EXPECT_EQ(send(data), 0u);
  EXPECT_EQ(network_.sent, data.substr(0, 5));
}

TEST_F(PastRing, TheEndComesAfterTheRest) {
  std::string data = pattern(18'007);
  network_.takes = 18'001;  // the rest ends the call, too
  EXPECT_EQ(send(data), data.size());
  EXPECT_EQ(link_.traffic().tx_bytes, data.size());
  link_.end_sending();
  link_.progress();
  EXPECT_FALSE(network_.ended_writing);
  EXPECT_FALSE(link_.finished());
  network_.takes = 100;
  link_.progress();
  link_.progress();
  EXPECT_TRUE(network_.sent == data);
  EXPECT_TRUE(network_.ended_writing);
  EXPECT_TRUE(link_.finished());
}

TEST_F(PastRing, WhatArrivesInPartIsAWholeNumberOfUnitsAndTheRestComesByTheRing) {
  for (const std::size_t comes : {1, 15, 16, 1001, 30'003}) {
    std::string data(kBytes, '-');
    const std::string text = pattern(comes);
    network_.arriving = text;
    const std::uint64_t moved = receive(data);
    EXPECT_EQ(moved, comes / 16 * 16);
    EXPECT_TRUE(data.substr(0, moved) + take_from_ring() == text) << comes;
  }
  EXPECT_EQ(link_.traffic().rx_bytes, 1u + 15u + 16u + 1001u + 30'003u);
}

TEST_F(PastRing, ACallThatGetsAllItAsksForLeavesNothingInTheRing) {
  std::string data(20'001, '-');
  network_.arriving = pattern(20'001) + "more";
  EXPECT_EQ(receive(data), 20'001u);
  EXPECT_TRUE(data == pattern(20'001));
  EXPECT_EQ(take_from_ring(), "");
}

TEST_F(PastRing, TheRestThatArrivedPassesTheRingsEnd) {
  network_.arriving = pattern(kRing - 4);
  link_.progress();
  EXPECT_EQ(take_from_ring().size(), kRing - 4);
  std::string data(kBytes, '-');
  network_.arriving = "0123456789";
  EXPECT_EQ(receive(data), 0u);
  EXPECT_EQ(take_from_ring(), "0123");
  EXPECT_EQ(take_from_ring(), "456789");
}

}  // namespace
}  // namespace gpusock::proxy::past_ring_test
