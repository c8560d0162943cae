#pragma once
/// @file Raw TCP as a wire (wire.cuh) and as a network (sides.cuh).

#include "spin.hpp"
#include "tcp_address.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace bench {

/// The errno of a wait that has ended early. `stop_ns` is 0 after a cancel().
inline int reason_of_stop(const std::atomic<std::uint64_t>& stop_ns) {
  return stop_ns.load(std::memory_order_relaxed) == 0 ? ECANCELED : ETIMEDOUT;  // relaxed: it guards no data
}

/// A wire (wire.cuh) over one connected socket.
class TcpWire {
 public:
  TcpWire(int descriptor, std::uint64_t deadline_ns, const std::atomic<std::uint64_t>& stop_ns)
      : descriptor_(descriptor), deadline_ns_(deadline_ns), stop_ns_(stop_ns) {}

  std::int64_t send(const gpusock::ThisThread&, const void* data, std::uint64_t bytes) {
    return move_all(bytes, [&](std::uint64_t done) {
      return ::send(descriptor_, static_cast<const char*>(data) + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  std::int64_t receive(const gpusock::ThisThread& group, void* data, std::uint64_t bytes) {
    return move_all(bytes,
                    [&](std::uint64_t done) { return read(group, static_cast<char*>(data) + done, bytes - done); });
  }
  std::int64_t receive_some(const gpusock::ThisThread& group, void* data, std::uint64_t bytes) {
    Spin spin(deadline_ns_, &stop_ns_);
    for (;;) {
      const auto got = read(group, data, bytes);
      if (got >= 0) return got;
      if (errno != EAGAIN && errno != EINTR) return -errno;
      if (!spin.turn()) return -reason_of_stop(stop_ns_);
    }
  }
  std::int64_t receive_now(const gpusock::ThisThread& group, void* data, std::uint64_t bytes) {
    const std::int64_t got = read(group, data, bytes);
    return got >= 0 ? got : errno == EINTR ? -EAGAIN : -errno;
  }
  void end_sending(const gpusock::ThisThread&) { ::shutdown(descriptor_, SHUT_WR); }
  void close(const gpusock::ThisThread&) { ::close(descriptor_); }

 private:
  std::int64_t read(const gpusock::ThisThread&, void* data, std::uint64_t bytes) {
    return ::recv(descriptor_, data, bytes, MSG_DONTWAIT);
  }

  /// Calls `move(done)` until all bytes are moved or the stream ends.
  template <class Move>
  std::int64_t move_all(std::uint64_t bytes, Move move) {
    Spin spin(deadline_ns_, &stop_ns_);
    std::uint64_t done = 0;
    while (done < bytes) {
      const auto moved = move(done);
      if (moved == 0) break;
      if (moved > 0) {
        done += static_cast<std::uint64_t>(moved);
      } else if (errno != EAGAIN && errno != EINTR) {
        return -errno;
      } else if (!spin.turn()) {
        return -reason_of_stop(stop_ns_);
      }
    }
    return static_cast<std::int64_t>(done);
  }

  int descriptor_;
  std::uint64_t deadline_ns_;
  const std::atomic<std::uint64_t>& stop_ns_;
};

/// A network (sides.cuh) of raw TCP.
class TcpNetwork {
 public:
  /// All waits end at `stop_ns`.
  TcpNetwork(const gpusock::Endpoint& to, int listener, const std::atomic<std::uint64_t>& stop_ns)
      : to_(to_tcp_address(to)), listener_(listener), stop_ns_(stop_ns) {}

  int connect(const gpusock::ThisThread&) const {
    const int made = ::socket(to_.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return -errno;
    const int error = ::connect(made, to_.get(), to_.bytes) == 0 ? 0 : errno == EINPROGRESS ? await(made) : errno;
    if (error == 0) return ready(made);
    ::close(made);
    return -error;
  }
  int accept(const gpusock::ThisThread&) const {
    for (;;) {
      const int made = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (made >= 0) return ready(made);
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return -errno;
      if (!wait_for(listener_, POLLIN)) return -reason_of_stop(stop_ns_);
    }
  }
  int open_set(const gpusock::ThisThread&) const {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    return set < 0 ? -errno : set;
  }
  int watch(const gpusock::ThisThread&, int set, int socket, std::uint64_t tag) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return epoll_ctl(set, EPOLL_CTL_ADD, socket, &event) == 0 ? 0 : -errno;
  }
  /// Spins, as the wires do.
  int wait(const gpusock::ThisThread&, int set, gpusock::PollEvent* events, int max) const {
    std::array<epoll_event, 64> ready;
    Spin spin(~std::uint64_t{0}, &stop_ns_);
    for (;;) {
      const int count = epoll_wait(set, ready.data(), std::min(max, static_cast<int>(ready.size())), 0);
      for (int i = 0; i < count; ++i) events[i].tag = ready[static_cast<std::size_t>(i)].data.u64;
      if (count > 0) return count;
      if (count < 0 && errno != EINTR) return -errno;
      if (!spin.turn()) return -reason_of_stop(stop_ns_);
    }
  }
  TcpWire wire(int socket) const { return {socket, ~std::uint64_t{0}, stop_ns_}; }
  TcpWire wire(int socket, std::uint64_t silence_ns) const {
    return {socket, gpusock::clock_ns() + silence_ns, stop_ns_};
  }

 private:
  static int ready(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // it can fail only if the peer is gone
    return socket;
  }
  /// Waits without spinning, because spinning threads would take processors from connecting ones. False at `stop_ns`.
  bool wait_for(int socket, short event) const {
    constexpr int kNap_ms = 50;
    for (;;) {
      pollfd entry{socket, event, 0};
      if (::poll(&entry, 1, kNap_ms) > 0) return true;
      if (gpusock::clock_ns() >= stop_ns_.load(std::memory_order_relaxed)) return false;  // it guards no data
    }
  }
  /// Waits until the socket has connected. Returns its errno, or 0.
  int await(int socket) const {
    if (!wait_for(socket, POLLOUT)) return reason_of_stop(stop_ns_);
    int error = 0;
    socklen_t bytes = sizeof error;
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
  }

  TcpAddress to_;
  int listener_;
  const std::atomic<std::uint64_t>& stop_ns_;
};

}  // namespace bench
