#include "runs/control.hpp"

#include "gpusock/gpusock.hpp"

#include <nlohmann/json.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace param_sync {

ControlSocket::~ControlSocket() {
  if (fd_ >= 0) ::close(fd_);
}

ControlSocket::ControlSocket(ControlSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

void ControlSocket::send(const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t sent = ::send(fd_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw gpusock::Error(errno, "the other process of this run has ended");
    done += static_cast<std::size_t>(sent);
  }
}

namespace {

/// Throws gpusock::Error (EPROTO) if the line is no message. The error quotes its beginning, as one line of ASCII.
nlohmann::json message_in(const std::string& line) {
  constexpr std::size_t kQuotedMax = 80;
  auto message = nlohmann::json::parse(line, nullptr, false);
  if (message.is_object()) return message;
  const nlohmann::json begin = line.substr(0, kQuotedMax);
  throw gpusock::Error::with_cause(EPROTO,
                                   "the other process of this run sent " +
                                       begin.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                                       (line.size() > kQuotedMax ? " and so on" : "") +
                                       ", which is no message (a JSON object): are both programs of the same version?");
}

}  // namespace

std::optional<nlohmann::json> ControlSocket::buffered() {
  const auto end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return message_in(line);
}

ControlSocket::Read ControlSocket::read_more(int flags) {
  char bytes[65536];
  for (;;) {
    const ssize_t got = ::recv(fd_, bytes, sizeof bytes, flags);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Read::nothing;
    if (got <= 0) return Read::end;  // a reset is an end, too
    buffer_.append(bytes, static_cast<std::size_t>(got));
    return Read::some;
  }
}

std::optional<nlohmann::json> ControlSocket::receive() {
  for (;;) {
    if (auto message = buffered()) return message;
    if (read_more(0) == Read::end) return std::nullopt;
  }
}

std::optional<nlohmann::json> ControlSocket::try_receive(bool& ended) {
  for (;;) {
    if (auto message = buffered()) return message;
    const Read read = read_more(MSG_DONTWAIT);
    if (read == Read::some) continue;
    ended = read == Read::end;
    return std::nullopt;
  }
}

void ControlSocket::interrupt() noexcept { ::shutdown(fd_, SHUT_RDWR); }

}  // namespace param_sync
