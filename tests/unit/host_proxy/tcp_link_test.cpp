// A TcpLink that reads as the proxy has it: after a read that has taken all there was, it waits for an event.
#include "host_proxy/links/tcp/tcp_link.hpp"
#include "tests/support/ring_storage.hpp"
#include "tests/unit/host_proxy/fake_stream.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace gpusock::proxy::tcp_link_test {
namespace {

constexpr std::uint64_t kRing = 4096;

class TcpLinkSteps : public testing::Test, public LinkEvents {
 protected:
  void send(const std::string& text) {
    std::memcpy(sender_.spans(text.size()).first.data, text.data(), text.size());
    sender_.commit(text.size());
  }
  /// As Proxy::step_active() does with many connections.
  void step() {
    stream_->drained = false;
    link_.progress();
    if (stream_->drained) stream_->readable = false;
  }

  void on_ended(std::uint64_t) override {}
  void on_peer_read_shut_down() override {}
  void on_sending_failed(int error) override { send_error_ = error; }
  void on_failed(int error) override { error_ = error; }

  fake::FakeStream::Network network_;
  ringbuf::RingStorage tx_{kRing}, rx_{kRing};
  ringbuf::ByteProducer<> sender_ = tx_.producer();
  ringbuf::ByteConsumer<> receiver_ = rx_.consumer();
  int send_error_ = 0, error_ = 0;
  fake::FakeStream* stream_ = new fake::FakeStream(network_);
  TcpLink link_{std::unique_ptr<ByteStream>(stream_), tx_.consumer(), rx_.producer(), *this};
};

TEST_F(TcpLinkSteps, AnErrorOfSendingReachesReadersWithoutAnEvent) {
  network_.write_error = ENOBUFS;  // the network has no event for it
  network_.arriving = "before";
  send("x");
  step();
  EXPECT_EQ(send_error_, ENOBUFS);
  EXPECT_EQ(receiver_.readable(), 6u);
  EXPECT_EQ(error_, 0) << "there may be more";
  step();
  EXPECT_EQ(error_, ENOBUFS);
}

TEST_F(TcpLinkSteps, AReadThatHasTakenAllIsNotMadeAgain) {
  network_.arriving = "some";
  step();
  network_.arriving = "more";
  step();
  EXPECT_EQ(receiver_.readable(), 4u) << "no event has come";
  stream_->readable = true;
  step();
  EXPECT_EQ(receiver_.readable(), 8u);
}

}  // namespace
}  // namespace gpusock::proxy::tcp_link_test
