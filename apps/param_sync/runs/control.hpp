#pragma once
/// @file Messages between a cluster and its node processes: lines of JSON over a socket pair.

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace param_sync {

/// One end. Owns the file descriptor.
class ControlSocket {
 public:
  explicit ControlSocket(int fd) : fd_(fd) {}
  ~ControlSocket();
  ControlSocket(ControlSocket&& other) noexcept;
  ControlSocket& operator=(ControlSocket&&) = delete;

  /// Throws gpusock::Error if the other end is gone.
  void send(const nlohmann::json& message);

  /// Waits for a message. Returns nothing at the end of the stream. Throws gpusock::Error (EPROTO) if a line arrives
  /// that is no message; so does try_receive().
  std::optional<nlohmann::json> receive();

  /// Returns a message that has arrived whole, of any length. Sets `ended` at the end of the stream if none is left.
  std::optional<nlohmann::json> try_receive(bool& ended);

  /// Makes a waiting receive() return nothing. Any thread may call it.
  void interrupt() noexcept;

  int fd() const { return fd_; }

 private:
  std::optional<nlohmann::json> buffered();
  enum class Read { some, nothing, end };
  Read read_more(int flags);

  int fd_;
  std::string buffer_;
};

}  // namespace param_sync
