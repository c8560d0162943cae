#pragma once
/// @file The control channel: the handshake's TCP connection, on which the two sides of a link exchange notices if the
/// link carries its bytes elsewhere. The notices say how each side ends. If the TCP connection breaks, the peer was
/// killed or, if the link sends probes, the network is lost (network_probe.hpp).

#include "host_proxy/links/link.hpp"
#include "host_proxy/net/network.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gpusock::proxy {

class ControlChannel {
 public:
  /// Takes a notice that only links of this kind send. Returns false if it is invalid: the connection then fails with
  /// EPROTO. Must accept only a limited number of notices.
  using TakeNotice = std::function<bool(std::uint64_t kind, std::uint64_t value)>;

  /// Tells `events` where the peer's stream ends, that the peer reads no more (a peer that has closed does not read,
  /// either), and that it is gone. `take_notice`, if given, gets the notices that only links of this kind send.
  ControlChannel(std::unique_ptr<ByteStream> stream, LinkEvents& events, TakeNotice take_notice = {});

  /// Each of these notices is sent at most once, by progress(). Call say_closed() only once.
  void say_ended(std::uint64_t final_position);
  void say_read_shut_down();
  void say_closed();
  /// Sends, by progress(), a notice of this kind of link; `kind` is 16 or more. Not after say_closed().
  void say(std::uint64_t kind, std::uint64_t value) { queue_notice(kind, value); }

  /// Sends a notice that the peer ignores. If the peer's host does not acknowledge it, TCP reports that after about a
  /// quarter of an hour (net.ipv4.tcp_retries2). May be called any number of times. Does nothing while other notices
  /// wait to be sent, because they serve as probes, too.
  void probe();

  /// Sends and receives as many notices as it can now; true if anything was moved. Does not wait.
  bool progress();

  /// True if the network has taken all notices.
  bool all_said() const { return outbox_.empty(); }
  bool ended() const { return ended_; }              ///< this side has announced the end of its stream
  bool peer_closed() const { return peer_closed_; }  ///< the peer has announced its close, its last notice
  /// True if the peer writes nothing any more. The stream should not be closed earlier: bytes that arrive after the
  /// close make the network reset the connection. If packets are lost or late, the reset may overtake the last notices
  /// of this side (RFC 1122, 4.2.2.13).
  bool peer_left() const { return peer_closed_ || left_ || failed_; }
  bool failed() const { return failed_; }

 private:
  /// A notice on the wire: 16 bytes, little-endian.
  struct Notice {
    std::uint64_t kind;
    std::uint64_t position;
  };
  enum Kind : std::uint64_t { kEnded = 1, kReadShutDown = 2, kClosed = 3, kProbe = 4 };

  void queue_notice(std::uint64_t kind, std::uint64_t position);
  bool flush();
  bool read_notices();
  void take(const Notice& notice);
  void fail(int error);

  std::unique_ptr<ByteStream> stream_;
  LinkEvents& events_;
  TakeNotice take_notice_;
  std::vector<std::byte> outbox_;
  std::array<std::byte, sizeof(Notice)> inbox_;
  std::size_t inbox_bytes_ = 0;
  bool ended_ = false;
  bool read_shut_down_ = false;
  bool peer_ended_ = false;
  bool peer_read_shut_down_ = false;
  bool closed_ = false;
  bool peer_closed_ = false;
  bool left_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy
