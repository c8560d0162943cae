#include "tcp_rival.hpp"

#include "host_side.hpp"
#include "sides.cuh"
#include "spin.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gpusock/gpusock.hpp>

namespace bench {
namespace {

int require(int result, const char* what) {
  if (result < 0) throw gpusock::Error(errno, std::string("raw TCP on the loopback: ") + what);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

/// A wire (wire.cuh) over one connected socket.
class TcpWire {
 public:
  TcpWire(int descriptor, std::uint64_t deadline_ns) : descriptor_(descriptor), deadline_ns_(deadline_ns) {}

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
    Spin spin(deadline_ns_);
    for (;;) {
      const auto got = read(group, data, bytes);
      if (got >= 0) return got;
      if (errno != EAGAIN && errno != EINTR) return -errno;
      if (!spin.turn()) return -ETIMEDOUT;
    }
  }
  void end_sending(const gpusock::ThisThread&) { ::shutdown(descriptor_, SHUT_WR); }
  void close(const gpusock::ThisThread&) { ::shutdown(descriptor_, SHUT_RDWR); }

 private:
  std::int64_t read(const gpusock::ThisThread&, void* data, std::uint64_t bytes) {
    return ::recv(descriptor_, data, bytes, MSG_DONTWAIT);
  }

  /// Calls `move(done)` until all bytes are moved or the stream ends.
  template <class Move>
  std::int64_t move_all(std::uint64_t bytes, Move move) {
    Spin spin(deadline_ns_);
    std::uint64_t done = 0;
    while (done < bytes) {
      const auto moved = move(done);
      if (moved == 0) break;
      if (moved > 0) {
        done += static_cast<std::uint64_t>(moved);
      } else if (errno != EAGAIN && errno != EINTR) {
        return -errno;
      } else if (!spin.turn()) {
        return -ETIMEDOUT;
      }
    }
    return static_cast<std::int64_t>(done);
  }

  int descriptor_;
  std::uint64_t deadline_ns_;
};

void set_no_delay(int descriptor) {
  const int on = 1;
  require(setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setting TCP_NODELAY");
}

class TcpRival final : public Contestant {
 public:
  std::string name() const override { return "raw TCP"; }
  std::string description() const override {
    return "raw non-blocking TCP sockets (TCP_NODELAY), two host threads that spin";
  }

  Round run(const Job& job) override {
    const Descriptor listener(require(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&at);
    socklen_t address_bytes = sizeof at;
    require(bind(listener.get(), address, address_bytes), "bind");
    require(::listen(listener.get(), 1), "listen");
    require(getsockname(listener.get(), address, &address_bytes), "getsockname");
    const Descriptor asker(require(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
    require(::connect(asker.get(), address, address_bytes), "connect");
    const Descriptor answerer(require(::accept(listener.get(), nullptr, nullptr), "accept"));
    return run_connected(job, asker.get(), answerer.get());
  }

 private:
  static Round run_connected(const Job& job, int asker, int answerer) {
    set_no_delay(asker);
    set_no_delay(answerer);
    const std::uint64_t deadline_ns = gpusock::clock_ns() + job.limit_ns;
    return run_on_two_threads(
        job,
        [&](const Memory& memory) {
          TcpWire wire(answerer, deadline_ns);
          play_answerer(gpusock::this_thread(), wire, job, memory);
        },
        [&](const Memory& memory) {
          TcpWire wire(asker, deadline_ns);
          play_asker(gpusock::this_thread(), wire, job, memory);
        },
        [](const Account&) {});
  }
};

}  // namespace

std::unique_ptr<Contestant> make_tcp_rival() { return std::make_unique<TcpRival>(); }

}  // namespace bench
