#pragma once
/// @file The notices that the two sides of a link send on the TCP connection of the handshake, if the link carries its
/// bytes elsewhere: how each side ends. If that connection breaks, the peer was killed or, with probes, the network is
/// lost (network_probe.hpp).

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
  /// Takes a notice of a link's own; false if it is invalid: then the connection fails with EPROTO. There must be a
  /// bound to how many are taken.
  using TakeNotice = std::function<bool(std::uint64_t kind, std::uint64_t value)>;

  /// `events` gets the peer's notices: the end of its stream, that it reads no more (also by closing), that it is gone.
  /// `take_notice`, if given, gets the notices that only links of this kind send.
  ControlChannel(std::unique_ptr<ByteStream> stream, LinkEvents& events, TakeNotice take_notice = {});

  /// Each is said once at most; progress() sends it.
  void say_ended(std::uint64_t final_position);
  void say_read_shut_down();
  void say_closed();
  /// Sends a notice of this kind of link; kinds from 16 on. Any number of times, before say_closed().
  void say(std::uint64_t kind, std::uint64_t value) { post(kind, value); }

  /// Sends a notice that the peer ignores. If its host does not acknowledge it, TCP reports that in the end: after
  /// about a quarter of an hour (net.ipv4.tcp_retries2). Any number of times; does nothing while other notices wait to
  /// be sent, because they serve as probes, too.
  void probe();

  /// Moves what can be moved now; true if anything was. Does not wait.
  bool progress();

  /// True if the network has taken all notices.
  bool all_said() const { return outbox_.empty(); }
  bool ended() const { return ended_; }              ///< this side has said so
  bool peer_closed() const { return peer_closed_; }  ///< the peer has said that it closed: nothing comes after it
  /// The peer writes nothing any more. Until then the stream should not be closed: what comes for it then makes the
  /// network reset the connection, and where packets are lost or late that may overtake what this side has said last
  /// (RFC 1122, 4.2.2.13).
  bool peer_left() const { return peer_closed_ || left_ || failed_; }
  bool failed() const { return failed_; }

 private:
  /// What travels. 16 bytes, little-endian.
  struct Notice {
    std::uint64_t kind;
    std::uint64_t position;
  };
  enum Kind : std::uint64_t { kEnded = 1, kReadShutDown = 2, kClosed = 3, kProbe = 4 };

  void post(std::uint64_t kind, std::uint64_t position);
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
