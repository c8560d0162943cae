#include "host_proxy/net/posix_network.hpp"

#include "plain_types/socket_address.hpp"
#include "plain_types/error.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace gpusock::proxy {
namespace {

using detail::SocketAddress;

/// What an epoll event points to: the flags to set, then those to clear, and the sink to notify.
struct Interest {
  bool* readable = nullptr;
  bool* writable = nullptr;
  bool* broken = nullptr;
  bool* drained = nullptr;            // each event clears it
  bool* short_reads_drain = nullptr;  // events of kLeftBehind clear it
  ReadySink** sink = nullptr;
};

/// After these events a read that takes less than it has room for may have left something: the end of the stream, an
/// error, or bytes after urgent data, at which a read stops.
constexpr std::uint32_t kLeftBehind = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI;

using NameCall = int (*)(int, sockaddr*, socklen_t*);

Endpoint name_of(int descriptor, NameCall call) {
  SocketAddress address;
  return call(descriptor, address.get(), &address.bytes) == 0 ? detail::endpoint_of(*address.get()) : Endpoint();
}

int enable(int descriptor, int level, int option) {
  const int on = 1;
  return setsockopt(descriptor, level, option, &on, sizeof on);
}

/// Adds a descriptor once for its life, edge-triggered: the flags remember what epoll has reported.
bool add_to_epoll(int epoll, int descriptor, std::uint32_t events, Interest* interest) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = interest;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

/// Closing the descriptor is not enough: a forked child may hold it, and its events would go on.
void remove_from_epoll(int epoll, int descriptor) { epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, nullptr); }

class TcpStream final : public ByteStream {
 public:
  TcpStream(Descriptor descriptor, int epoll) : descriptor_(std::move(descriptor)), epoll_(epoll) {
    enable(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY);  // the rings do the batching
  }

  ~TcpStream() override { remove_from_epoll(epoll_, descriptor_.get()); }

  bool join() {
    return add_to_epoll(epoll_, descriptor_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, &interest_);
  }

  /// epoll(7): a read that takes less than it has room for has taken all there was. What arrives later is an event.
  /// What came before and is left is one of kLeftBehind, which has been reported, or is an event that poll() has not
  /// taken yet. For one piece, recv() costs the system a tenth less than recvmsg().
  std::int64_t read(std::span<const iovec> into) override {
    const auto call = [&] {
      if (into.size() == 1) return recv(descriptor_.get(), into[0].iov_base, into[0].iov_len, MSG_DONTWAIT);
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(into.data());
      message.msg_iovlen = into.size();
      return recvmsg(descriptor_.get(), &message, MSG_DONTWAIT);
    };
    const std::int64_t got = finish(uninterrupted(call), readable);
    drained = short_reads_drain_ && got > 0 && static_cast<std::uint64_t>(got) < bytes_of(into);
    return got;
  }

  std::int64_t write(std::span<const iovec> from) override {
    constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
    const auto call = [&] {
      if (from.size() == 1) return send(descriptor_.get(), from[0].iov_base, from[0].iov_len, kFlags);
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(from.data());
      message.msg_iovlen = from.size();
      return sendmsg(descriptor_.get(), &message, kFlags);
    };
    return finish(uninterrupted(call), writable);
  }

  int connected() override {
    const int error = pending_error();
    if (error == EPIPE)
      return -ECONNRESET;  // Linux's error for a reset after the peer's end, even if this side has not written
    if (error != 0) return -error;
    return peer().family == 0 ? -EINPROGRESS : 0;
  }

  int take_error() override { return of_connection(pending_error()); }

  void end_writing() override { ::shutdown(descriptor_.get(), SHUT_WR); }

  void set_options(const table::SocketOptions& options) override {
    if (options.no_delay != options_.no_delay) set(IPPROTO_TCP, TCP_NODELAY, options.no_delay);
    if (options.keep_alive != options_.keep_alive) set(SOL_SOCKET, SO_KEEPALIVE, options.keep_alive);
    options_ = options;
  }

  void reset_on_close() override {
    const linger abort{1, 0};
    setsockopt(descriptor_.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  }

  Endpoint local() const override { return name_of(descriptor_.get(), getsockname); }
  Endpoint peer() const override { return name_of(descriptor_.get(), getpeername); }

  TcpInfo tcp_info() const override {
    struct tcp_info facts {};
    socklen_t bytes = sizeof facts;
    if (getsockopt(descriptor_.get(), IPPROTO_TCP, TCP_INFO, &facts, &bytes) != 0) return {};
    return {1,
            facts.tcpi_rtt,
            facts.tcpi_rttvar,
            facts.tcpi_rto,
            facts.tcpi_snd_cwnd,
            facts.tcpi_snd_mss,
            facts.tcpi_unacked,
            facts.tcpi_total_retrans};
  }

 private:
  void set(int level, int option, bool on) {
    const int value = on ? 1 : 0;
    setsockopt(descriptor_.get(), level, option, &value, sizeof value);
  }

  int pending_error() {
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(descriptor_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error;
  }

  /// Replaces ETIMEDOUT: to callers it means that their deadline has passed, and that they may try again. But a
  /// connection that the system has given up is gone.
  static int of_connection(int error) { return error == ETIMEDOUT ? ECONNRESET : error; }

  static std::int64_t finish(ssize_t result, bool& ready) {
    if (result >= 0) return result;
    if (errno == EAGAIN) ready = false;
    return -of_connection(errno);
  }

  static std::uint64_t bytes_of(std::span<const iovec> parts) {
    std::uint64_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    return bytes;
  }

  Descriptor descriptor_;
  int epoll_;
  table::SocketOptions options_;
  bool short_reads_drain_ = true;
  Interest interest_{&readable, &writable, &broken, &drained, &short_reads_drain_, &sink};
};

class TcpAcceptor final : public Acceptor {
 public:
  TcpAcceptor(Descriptor descriptor, int epoll) : descriptor_(std::move(descriptor)), epoll_(epoll) {}
  ~TcpAcceptor() override { remove_from_epoll(epoll_, descriptor_.get()); }

  bool join() { return add_to_epoll(epoll_, descriptor_.get(), EPOLLIN, &interest_); }

  std::unique_ptr<ByteStream> accept() override {
    for (;;) {
      Descriptor accepted(accept4(descriptor_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!accepted) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        readable = errno != EAGAIN;  // out of descriptors: look again later
        return nullptr;
      }
      auto stream = make_stream(accepted);
      if (stream->join()) return stream;
    }
  }

  Endpoint local() const override { return name_of(descriptor_.get(), getsockname); }

 private:
  /// If there is no memory for the stream, the connection is reset.
  std::unique_ptr<TcpStream> make_stream(Descriptor& accepted) {
    try {
      return std::make_unique<TcpStream>(std::move(accepted), epoll_);
    } catch (const std::bad_alloc&) {
      const linger abort{1, 0};
      setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
      throw;
    }
  }

  Descriptor descriptor_;
  int epoll_;
  Interest interest_{&readable, nullptr, nullptr, nullptr, nullptr, &sink};
};

/// Makes the process's table of descriptors large enough for kDescriptors, as far as the limit allows. Otherwise the
/// table doubles whenever a descriptor does not fit. If the process has several threads, Linux waits for an RCU grace
/// period each time (expand_fdtable() in fs/file.c): seconds on a busy machine. In an accept() of the proxy's step,
/// that would stall all of the context's sockets. `any`: an open descriptor.
void reserve_descriptors(int any) noexcept {
  constexpr rlim_t kDescriptors = 16384;  // 128 KiB of the operating system's memory
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
  const auto last = static_cast<int>(std::min(limit.rlim_cur, kDescriptors) - 1);
  const Descriptor reached(fcntl(any, F_DUPFD_CLOEXEC, last));
}

/// This lowest bit marks epoll data that is the sink itself, so that a watched descriptor needs no Interest object.
constexpr std::uintptr_t kSinkTag = 1;

}  // namespace

PosixNetwork::PosixNetwork() : epoll_(epoll_create1(EPOLL_CLOEXEC)), bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (!epoll_ || !bell_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0) {
    throw Error(errno, "setting up the proxy's epoll; raise the limit on open files (ulimit -n)");
  }
  reserve_descriptors(bell_.get());
}

std::unique_ptr<Acceptor> PosixNetwork::listen(const Endpoint& at, int backlog, int& error) {
  SocketAddress address(at);
  Descriptor descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (descriptor) {
    enable(descriptor.get(), SOL_SOCKET, SO_REUSEADDR);
    if (bind(descriptor.get(), address.get(), address.bytes) == 0 && ::listen(descriptor.get(), backlog) == 0) {
      auto acceptor = std::make_unique<TcpAcceptor>(std::move(descriptor), epoll_.get());
      if (acceptor->join()) return acceptor;
      error = errno;  // before ~TcpAcceptor() changes it
      return nullptr;
    }
  }
  error = errno;
  return nullptr;
}

std::unique_ptr<ByteStream> PosixNetwork::connect(const Endpoint& to, int& error) {
  SocketAddress address(to);
  Descriptor descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (descriptor && (::connect(descriptor.get(), address.get(), address.bytes) == 0 || errno == EINPROGRESS)) {
    auto stream = std::make_unique<TcpStream>(std::move(descriptor), epoll_.get());
    if (stream->join()) return stream;
    error = errno;  // before ~TcpStream() changes it
    return nullptr;
  }
  error = errno;
  return nullptr;
}

void PosixNetwork::poll() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == nullptr) continue;  // the bell: only the thread that sleeps resets it; others poll, too
    const auto tagged = reinterpret_cast<std::uintptr_t>(events[i].data.ptr);
    if ((tagged & kSinkTag) != 0) {
      reinterpret_cast<ReadySink*>(tagged & ~kSinkTag)->on_ready();
      continue;
    }
    const Interest& interest = *static_cast<Interest*>(events[i].data.ptr);
    const bool broken = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
    if (interest.readable != nullptr && (broken || (events[i].events & (EPOLLIN | EPOLLRDHUP)) != 0))
      *interest.readable = true;
    if (interest.writable != nullptr && (broken || (events[i].events & EPOLLOUT) != 0)) *interest.writable = true;
    if (interest.broken != nullptr && broken) *interest.broken = true;
    if (interest.drained != nullptr) *interest.drained = false;
    if (interest.short_reads_drain != nullptr && (events[i].events & kLeftBehind) != 0)
      *interest.short_reads_drain = false;
    if (*interest.sink != nullptr) (*interest.sink)->on_ready();
  }
}

void PosixNetwork::watch(int descriptor, ReadySink& sink) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&sink) | kSinkTag);
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
}

void PosixNetwork::unwatch(int descriptor) { remove_from_epoll(epoll_.get(), descriptor); }

void PosixNetwork::sleep(std::uint64_t timeout_ns) { wait_for(epoll_.get(), timeout_ns); }

bool PosixNetwork::sleep_until_rung(std::uint64_t timeout_ns) { return wait_for(bell_.get(), timeout_ns); }

bool PosixNetwork::wait_for(int descriptor, std::uint64_t timeout_ns) {
  pollfd entry{descriptor, POLLIN, 0};
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  ppoll(&entry, 1, &timeout, nullptr);
  std::uint64_t rings = 0;
  return ::read(bell_.get(), &rings, sizeof rings) > 0;  // of a ring that came after ppoll() ended, too: it is taken
}

void PosixNetwork::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto bytes = ::write(bell_.get(), &one, sizeof one);
}

}  // namespace gpusock::proxy
