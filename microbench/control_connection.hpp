#pragma once
/// @file The connection that carries control messages. No call waits longer than it is told.

#include "control_message.hpp"
#include "tcp_address.hpp"

#include <optional>

namespace bench {

class ControlConnection {
 public:
  /// Takes a connected socket. `peer`: how messages name the other side, as "the client at HOST:PORT". (Whoever has it
  /// from accept() knows it also where the peer has ended the connection since.)
  ControlConnection(Descriptor socket, std::string peer);

  /// Connects to the first of the server's addresses that answers. Throws Error.
  static ControlConnection connect(const std::string& server, std::uint64_t limit_ns);

  /// Throw Error: the peer is gone, sent what is not valid, or did not answer in time.
  template <class Message>
  void send(const Message& message, std::uint64_t limit_ns) {
    send_bytes(encode(message), limit_ns);
  }
  Frame receive(std::uint64_t limit_ns);
  template <class Message>
  Message receive(std::uint64_t limit_ns) {
    return decode<Message>(receive(limit_ns), peer_);
  }
  /// As receive(), but no frame if the peer has ended the connection instead of sending one.
  std::optional<Frame> receive_or_end(std::uint64_t limit_ns);

  /// True if receive() would not wait: a whole message is here, or what is here is none, or the peer has ended. While
  /// it is false, poll() reports POLLIN once more of the message is here, and POLLRDHUP once the peer has ended.
  bool has_message();

  /// True if the peer has ended the connection, or at least sends nothing more. Does not wait.
  bool peer_has_ended() const;

  int descriptor() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }  ///< how messages name the other side

 private:
  void send_bytes(const std::string& bytes, std::uint64_t limit_ns);
  /// False if the stream ended before the first byte.
  bool receive_bytes(void* into, std::size_t bytes, std::uint64_t until_ns, std::uint64_t limit_ns);
  void wait(short event, std::uint64_t until_ns, std::uint64_t limit_ns) const;
  [[noreturn]] void fail(int error) const;
  /// poll() reports POLLIN from so many bytes on.
  void report_from(std::size_t bytes) const;

  Descriptor socket_;
  std::string peer_;
};

}  // namespace bench
