#pragma once
// A TCP connection that passes through the test: until told otherwise it carries all bytes, both ways.
#include "tests/support/strangers.hpp"

#include <poll.h>

#include <algorithm>
#include <mutex>
#include <stop_token>
#include <thread>

namespace gpusock::test {

/// Between a program that connects to at() and one that listens. Each connection gets one of its own to there.
class Relay {
 public:
  explicit Relay(const Endpoint& to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), at_(to) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    const auto generic = reinterpret_cast<sockaddr*>(&address);
    const bool listens = ::bind(listener_, generic, bytes) == 0 && ::listen(listener_, 16) == 0;
    if (listens && getsockname(listener_, generic, &bytes) == 0) at_ = to.with_port(ntohs(address.sin_port));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Relay() {
    thread_.request_stop();
    thread_.join();
    for (const Ends& each : connections_) {
      for (const int end : each.socket) ::close(end);
    }
    ::close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const Endpoint& at() const { return at_; }
  /// From now on both peers find the other one so: silent; slow, a byte each kSlowMs; sending garbage; gone.
  void become(Manner manner) {
    const std::lock_guard lock(mutex_);  // what was under way before has been carried
    manner_ = static_cast<int>(manner);
  }

 private:
  static constexpr int kFaithful = -1, kSlowMs = 10;

  struct Ends {
    int socket[2];
  };

  void accept() {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(to_.port);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address);
    connections_.push_back({{client, server}});
  }

  /// Carries what one end has sent; less where it is slow, and something else where it sends garbage.
  static void carry(int from, int to, int manner) {
    char bytes[1 << 14];
    const bool slow = manner == static_cast<int>(Manner::slow);
    const ssize_t got = ::recv(from, bytes, slow ? 1 : sizeof bytes, MSG_DONTWAIT);
    if (got == 0) ::shutdown(to, SHUT_WR);
    if (manner == static_cast<int>(Manner::garbage)) std::fill(bytes, bytes + std::max<ssize_t>(got, 0), '\x5a');
    if (got > 0) ::send(to, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void run(const std::stop_token& stop) {
    int wait_ms = 1;
    while (!stop.stop_requested()) {
      pollfd entry{listener_, POLLIN, 0};
      if (::poll(&entry, 1, wait_ms) > 0) accept();
      const std::lock_guard lock(mutex_);
      const int manner = manner_;
      wait_ms = manner == kFaithful ? 1 : kSlowMs;
      for (const Ends& each : connections_) {
        if (manner == static_cast<int>(Manner::hangs_up)) {
          for (const int end : each.socket) ::shutdown(end, SHUT_RDWR);
        } else if (manner != static_cast<int>(Manner::silent)) {
          carry(each.socket[0], each.socket[1], manner);
          carry(each.socket[1], each.socket[0], manner);
        }
      }
    }
  }

  const Endpoint to_;
  const int listener_;
  Endpoint at_;
  std::mutex mutex_;
  int manner_ = kFaithful;
  std::vector<Ends> connections_;
  std::jthread thread_;
};

}  // namespace gpusock::test
