#pragma once
/// @file Lines of JSON between a cluster and its node processes, over a socket pair.

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace param_sync {

/// One end. Owns the file descriptor.
class ProcessChannel {
 public:
  explicit ProcessChannel(int fd) : fd_(fd) {}
  ~ProcessChannel();
  ProcessChannel(ProcessChannel&& other) noexcept;
  ProcessChannel& operator=(ProcessChannel&&) = delete;

  /// Throws gpusock::Error where the other end is gone.
  void send(const nlohmann::json& message);

  /// Waits for a message; nothing at the end of the stream. Throws gpusock::Error.
  std::optional<nlohmann::json> receive();

  /// A message that is there already, however long. Sets `ended` at the end of the stream, if no message is left.
  std::optional<nlohmann::json> try_receive(bool& ended);

  /// Makes a waiting receive() return nothing. From any thread.
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
