#include "control_connection.hpp"

#include "program/socket_failure.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace bench {
namespace {

std::string seconds(std::uint64_t ns) {
  const std::string text = std::to_string(static_cast<double>(ns) * 1e-9);
  return text.substr(0, text.find('.') + 2) + " s";
}

/// Waits for `event`; false at the deadline.
bool wait_for(int descriptor, short event, std::uint64_t until_ns) {
  for (;;) {
    const std::uint64_t now_ns = gpusock::clock_ns();
    if (now_ns >= until_ns) return false;
    const std::uint64_t left_ms = (until_ns - now_ns) / 1'000'000 + 1;
    pollfd entry{descriptor, event, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::uint64_t>(left_ms, 1'000'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on the socket reports the error
  }
}

/// How many bytes must be here to read the next part of a message, or all of it, given its first `bytes` bytes; 0 if
/// they are not the beginning of a valid message.
std::size_t bytes_wanted(const char* front, std::size_t bytes, const std::string& peer) {
  Header header;
  std::memcpy(&header, front, std::min(bytes, sizeof header));
  if (bytes < sizeof header.magic) return sizeof header.magic;
  if (header.magic != kControlMagic) return 0;
  if (bytes < sizeof header) return sizeof header;
  return problem_of(header, peer).empty() ? sizeof header + header.body_bytes : 0;
}

/// A connected socket, or -errno.
int try_to_connect(const gpusock::Endpoint& to, std::uint64_t until_ns) {
  const TcpAddress address = to_tcp_address(to);
  Descriptor made(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.get() < 0) return -errno;
  if (::connect(made.get(), address.get(), address.bytes) != 0) {
    if (errno != EINPROGRESS) return -errno;
    if (!wait_for(made.get(), POLLOUT, until_ns)) return -ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return -errno;
    if (error != 0) return -error;
  }
  return made.release();
}

}  // namespace

ControlConnection::ControlConnection(Descriptor socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  set_no_delay(socket_.get());
}

ControlConnection ControlConnection::connect(const std::string& server, std::uint64_t limit_ns) {
  const auto all = gpusock::Endpoint::parse(server + ",link=tcp");
  const std::uint64_t until_ns = gpusock::clock_ns() + limit_ns;
  int error = EINVAL;
  for (int i = 0; i < all.addresses(); ++i) {
    const int made = try_to_connect(all.at_address(i), until_ns);
    if (made >= 0) {
      return {Descriptor(made), "the server at " + all.at_address(i).host_port()};
    }
    error = -made;
  }
  throw gpusock::program::SocketFailure("connecting to gpusock-bench serve at " + server,
                                        gpusock::program::Attempt::connecting, error, all);
}

void ControlConnection::fail(int error) const {
  throw gpusock::Error(error, error == EPIPE || error == ECONNRESET ? peer_ + " has ended" : peer_);
}

void ControlConnection::wait(short event, std::uint64_t until_ns, std::uint64_t limit_ns) const {
  if (!wait_for(socket_.get(), event, until_ns)) {
    throw gpusock::Error(ETIMEDOUT, peer_ + " has said nothing for " + seconds(limit_ns));
  }
}

void ControlConnection::send(MessageKind kind, const nlohmann::json& body, std::uint64_t limit_ns) {
  const std::string bytes = encode(kind, body);
  const std::uint64_t until_ns = gpusock::clock_ns() + limit_ns;
  for (std::size_t done = 0; done < bytes.size();) {
    const auto sent = ::send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      wait(POLLOUT, until_ns, limit_ns);
    } else {
      fail(errno);
    }
  }
}

bool ControlConnection::receive_bytes(void* into, std::size_t bytes, std::uint64_t until_ns, std::uint64_t limit_ns) {
  for (std::size_t done = 0; done < bytes;) {
    const auto got = ::recv(socket_.get(), static_cast<char*>(into) + done, bytes - done, 0);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      if (done == 0) return false;
      fail(ECONNRESET);
    } else if (errno == EAGAIN || errno == EINTR) {
      wait(POLLIN, until_ns, limit_ns);
    } else {
      fail(errno);
    }
  }
  return true;
}

std::optional<Frame> ControlConnection::receive_or_end(std::uint64_t limit_ns) {
  const std::uint64_t until_ns = gpusock::clock_ns() + limit_ns;
  Header header;
  // Reads the magic first: a peer that is not gpusock-bench may have sent less than a header.
  if (!receive_bytes(&header.magic, sizeof header.magic, until_ns, limit_ns)) return std::nullopt;
  const bool ours = header.magic == kControlMagic;
  if (ours && !receive_bytes(&header.version, sizeof header - sizeof header.magic, until_ns, limit_ns)) {
    fail(ECONNRESET);
  }
  const std::string problem = problem_of(header, peer_);
  if (!problem.empty()) throw gpusock::Error(EPROTO, problem);
  Frame frame{static_cast<MessageKind>(header.kind), std::string(header.body_bytes, '\0')};
  if (!receive_bytes(frame.body.data(), frame.body.size(), until_ns, limit_ns)) fail(ECONNRESET);
  return frame;
}

bool ControlConnection::has_message() {
  std::array<char, sizeof(Header) + kBodyBytesMax> front;
  const auto got = ::recv(socket_.get(), front.data(), front.size(), MSG_PEEK);
  if (got <= 0) return got == 0 || (errno != EAGAIN && errno != EINTR);
  const std::size_t wanted = peer_has_ended() ? 0 : bytes_wanted(front.data(), static_cast<std::size_t>(got), peer_);
  const bool has = static_cast<std::size_t>(got) >= wanted;
  report_from(has ? 1 : wanted);
  return has;
}

bool ControlConnection::peer_has_ended() const {
  pollfd ended{socket_.get(), POLLRDHUP, 0};
  return ::poll(&ended, 1, 0) > 0;
}

void ControlConnection::report_from(std::size_t bytes) const {
  const int value = static_cast<int>(bytes);
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
}

Frame ControlConnection::receive(std::uint64_t limit_ns) {
  auto frame = receive_or_end(limit_ns);
  if (!frame) fail(ECONNRESET);
  return *std::move(frame);
}

}  // namespace bench
