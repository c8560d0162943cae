#pragma once
/// @file The tcp link: the rings' bytes on a TCP connection as they are, with no framing.

#include "host_proxy/links/link.hpp"
#include "host_proxy/net/network.hpp"
#include "ringbuf/byte_ring.hpp"

#include <array>
#include <memory>

namespace gpusock::proxy {

class TcpLink final : public Link {
 public:
  TcpLink(std::unique_ptr<ByteStream> stream, ringbuf::ByteConsumer<> tx, ringbuf::ByteProducer<> rx,
          LinkEvents& events);

  bool progress() override;
  std::uint64_t move_past_ring(const detail::PastRing& wanted) override;
  void end_sending() override;
  void end_receiving() override { discard_ = true; }
  bool refuse_input() override;
  void close() override {}
  bool finished() const override { return writing_ended_ || failed_; }
  bool waits_for_credit() const override { return rx_full_ && !discard_ && !failed_; }
  Traffic traffic() const override;

 private:
  bool transmit();
  void keep_rest(const std::byte* data, std::uint64_t bytes);
  bool transmit_rest();
  std::uint64_t transmit_past_ring(std::byte* data, std::uint64_t bytes);
  std::uint64_t write(std::span<const iovec> from);
  std::uint64_t read(std::span<const iovec> into);
  bool deliver();
  std::uint64_t deliver_past_ring(std::byte* data, std::uint64_t bytes);
  void put_into_ring(const std::byte* data, std::uint64_t bytes);
  bool drop_arriving();
  bool end_writing_if_all_is_sent();
  /// True if bytes were put into the ring that callers have not taken.
  bool has_unread() { return rx_.writable() != rx_.memory().capacity; }
  void take_breakage();
  void fail_sending(int error);
  void reset_unread();
  void fail(int error);

  std::unique_ptr<ByteStream> stream_;
  ringbuf::ByteConsumer<> tx_;
  ringbuf::ByteProducer<> rx_;
  LinkEvents& events_;
  std::uint64_t tx_start_;
  std::uint64_t rx_start_;
  Traffic past_rings_;  // bytes moved past the rings
  // The last bytes that a caller sent past the ring: the network had no room for them. They go before the ring's bytes.
  std::array<std::byte, detail::PastRing::kUnitBytes> rest_;
  std::uint64_t rest_bytes_ = 0;
  bool end_wanted_ = false;
  bool writing_ended_ = false;
  bool discard_ = false;
  bool refuses_input_ = false;  // the caller has closed the socket: bytes that arrive reset the connection
  bool reading_ended_ = false;
  bool rx_full_ = false;
  bool failed_ = false;
  int send_error_ = 0;  // why nothing can be sent any more: an errno
};

}  // namespace gpusock::proxy
