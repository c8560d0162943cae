#pragma once
// Programs that connect to a TCP port and are no peers: they say nothing, or too little, or something else, or hang up.
#include <gpusock/endpoint.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace gpusock::test {

enum class Manner { silent, slow, garbage, hangs_up };

struct MannerName {
  static std::string of(Manner manner) {
    const char* const names[] = {"silent", "slow", "garbage", "hangs_up"};
    return names[static_cast<int>(manner)];
  }
};

/// One of them. It has connected when its constructor returns.
class Stranger {
 public:
  explicit Stranger(const Endpoint& at) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(at.port);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  Stranger(Stranger&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(std::exchange(other.connected_, false)) {}
  ~Stranger() { hang_up(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  Stranger& operator=(Stranger&&) = delete;

  bool connected() const { return connected_; }
  bool say(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// Does what programs of this kind do first. A slow one sends a byte, and no more while anyone looks.
  void behave(Manner manner) {
    if (manner == Manner::slow) say(std::string(1, '\0'));
    if (manner == Manner::garbage) say(std::string(4000, '\x5a'));
    if (manner == Manner::hangs_up) hang_up();
  }
  /// Waits until it is disconnected, for a time at most.
  bool sent_away() const {
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte = 0;
    const ssize_t got = ::recv(socket_, &byte, 1, 0);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  /// True if it is not disconnected now.
  bool still_waits() const {
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

 private:
  void hang_up() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  int socket_;
  bool connected_ = false;
};

/// So many, in the order in which they connect.
inline std::vector<Stranger> strangers_at(const Endpoint& at, Manner manner, int count) {
  std::vector<Stranger> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(at);
    all.back().behave(manner);
  }
  return all;
}

}  // namespace gpusock::test
