#pragma once
/// @file The p2p link: the peer's ring is mapped here, and callers store straight into it. The proxy carries no data; it
/// watches the TCP connection of the handshake, on which the two sides tell each other how they end.

#include "host_proxy/link.hpp"
#include "host_proxy/network.hpp"
#include "host_proxy/segment.hpp"

#include <array>
#include <memory>

namespace gpusock::proxy {

class P2pLink final : public Link {
 public:
  /// `side` is 0 on the segment's maker and 1 on its peer: the ring this side sends on.
  P2pLink(std::unique_ptr<ByteStream> control, std::shared_ptr<Segment> segment, int side, LinkEvents& events);

  bool pump() override;
  void end_sending() override;
  void end_receiving() override;
  void close() override;
  bool finished() const override { return failed_ || (ended_ && outbox_bytes_ == 0); }
  bool waits_for_credit() const override { return false; }
  Traffic traffic() const override;

 private:
  /// What travels on the control connection. 16 bytes, little-endian.
  struct Notice {
    std::uint64_t kind;
    std::uint64_t final_position;
  };
  enum Kind : std::uint64_t { kEnded = 1, kDeaf = 2, kClosed = 3 };

  void post(Kind kind);
  bool flush();
  bool read_notices();
  void take(const Notice& notice);
  void fail(int error);

  std::unique_ptr<ByteStream> control_;
  std::shared_ptr<Segment> segment_;
  int side_;
  LinkEvents& events_;
  std::array<std::byte, 4 * sizeof(Notice)> outbox_;  // each kind is posted once at most
  std::size_t outbox_bytes_ = 0;
  std::array<std::byte, sizeof(Notice)> inbox_;
  std::size_t inbox_bytes_ = 0;
  bool ended_ = false;
  bool deaf_ = false;
  bool peer_ended_ = false;
  bool peer_closed_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy
