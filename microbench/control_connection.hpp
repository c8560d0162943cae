#pragma once
/// @file The connection that carries control messages. No call waits longer than its limit.

#include "control_message.hpp"
#include "tcp_address.hpp"

#include <optional>

namespace bench {

class ControlConnection {
 public:
  /// Takes a connected socket. `peer` names the other side in error texts: "the client at HOST:PORT". (A caller that
  /// got the address from accept() knows it even if the peer has ended the connection since then.)
  ControlConnection(Descriptor socket, std::string peer);

  /// Connects to the first of the server's addresses that answers. Throws program::SocketFailure, or Error.
  static ControlConnection connect(const std::string& server, std::uint64_t limit_ns);

  /// Throw Error if the peer is gone, sent something invalid, or did not answer in time.
  void send(MessageKind kind, const nlohmann::json& body, std::uint64_t limit_ns);
  Frame receive(std::uint64_t limit_ns);
  /// As receive(), but returns nothing if the peer has ended the connection instead of sending a message.
  std::optional<Frame> receive_or_end(std::uint64_t limit_ns);

  /// True if receive() would not wait: a whole message, or an invalid beginning, has arrived, or the peer has ended.
  /// While it is false, poll() reports POLLIN when more of the message has arrived, and POLLRDHUP when the peer ends.
  bool has_message();

  /// True if the peer has ended the connection, or at least its sending direction. Does not wait.
  bool peer_has_ended() const;

  int descriptor() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }  ///< the other side's name in error texts

 private:
  /// False if the stream ended before the first byte.
  bool receive_bytes(void* into, std::size_t bytes, std::uint64_t until_ns, std::uint64_t limit_ns);
  void wait(short event, std::uint64_t until_ns, std::uint64_t limit_ns) const;
  [[noreturn]] void fail(int error) const;
  /// Makes poll() report POLLIN only when `bytes` bytes or more have arrived.
  void report_from(std::size_t bytes) const;

  Descriptor socket_;
  std::string peer_;
};

}  // namespace bench
