#include "baseline/socket_store.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <future>
#include <span>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace param_sync::baseline {
namespace {

// A message is a Meta, and after it as many keys, lengths (of 4 bytes) and values (floats) as the Meta says. A server
// answers a push with a Meta alone. A pull has a key alone; the answer has the key, its length and its values.
enum class Kind : std::uint32_t { push, pull };

struct Meta {
  Kind kind = Kind::push;
  std::uint32_t timestamp = 0;
  std::uint32_t keys = 0;
  std::uint32_t lengths = 0;
  std::uint64_t values = 0;
};

/// The part of a message before its values, if it has one key.
struct Head {
  Meta meta;
  std::uint64_t key = 0;
  std::uint32_t length = 0;  ///< not sent in a pull

  std::size_t bytes() const { return sizeof meta + meta.keys * sizeof key + meta.lengths * sizeof length; }
};

constexpr std::size_t kHeadBytesMax = sizeof(Meta) + sizeof(std::uint64_t) + sizeof(std::uint32_t);

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

/// A socket, which this object closes.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {
    if (fd < 0) fail("a raw socket");
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Returns the two ends of a new TCP connection over loopback, without delays for small messages.
std::pair<Fd, Fd> connected() {
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener.get(), address, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &size) != 0)
    fail("listening on a raw socket");
  Fd worker(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(worker.get(), address, size) != 0) fail("connecting a raw socket");
  Fd owner(accept(listener.get(), nullptr, nullptr));
  const int on = 1;
  for (const Fd* end : {&worker, &owner}) {
    if (setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
  }
  return {std::move(worker), std::move(owner)};
}

/// Calls sendmsg() or recvmsg() until all parts are done.
template <class Call>
void transfer(Call call, int flags, const Fd& fd, std::span<iovec> parts) {
  while (!parts.empty()) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t done = call(fd.get(), &message, flags);
    if (done == 0) throw std::runtime_error("raw sockets: the other end of a connection is gone");
    if (done < 0 && errno != EINTR) fail("a raw socket");
    for (auto left = static_cast<std::size_t>(std::max<ssize_t>(done, 0)); !parts.empty();) {
      iovec& first = parts.front();
      const std::size_t taken = std::min(left, first.iov_len);
      first.iov_base = static_cast<char*>(first.iov_base) + taken;
      first.iov_len -= taken;
      left -= taken;
      if (first.iov_len != 0) break;
      parts = parts.subspan(1);
    }
  }
}

void send(const Fd& fd, std::span<iovec> parts) { transfer(sendmsg, MSG_NOSIGNAL, fd, parts); }
void receive(const Fd& fd, std::span<iovec> parts) { transfer(recvmsg, MSG_WAITALL, fd, parts); }

/// A worker, with a connection to each owner.
class Worker {
 public:
  explicit Worker(std::size_t floats) : pushed_(floats, 1), pulled_(floats) {}

  void add_owner(Fd connection) { owners_.push_back(std::move(connection)); }

  /// Pushes and pulls. The pull does not wait until the push is acknowledged: an owner takes requests in their order.
  void run(const StoreLoad& load, int rank, int pairs) {
    for (int pair = 0; pair < pairs; ++pair) {
      const int range = load.range_of(rank, pair);
      const Fd& owner = owners_[static_cast<std::size_t>(range)];
      const auto key = static_cast<std::uint64_t>(range);
      const std::size_t bytes = pushed_.size() * sizeof(float);
      Head push{{Kind::push, ++timestamp_, 1, 1, pushed_.size()}, key, static_cast<std::uint32_t>(pushed_.size())};
      iovec push_parts[] = {{&push, push.bytes()}, {pushed_.data(), bytes}};
      send(owner, push_parts);
      Head pull{{Kind::pull, ++timestamp_, 1, 0, 0}, key, 0};
      iovec pull_parts[] = {{&pull, pull.bytes()}};
      send(owner, pull_parts);
      Meta acknowledged;
      Head answer;
      iovec answer_parts[] = {{&acknowledged, sizeof acknowledged}, {&answer, kHeadBytesMax}, {pulled_.data(), bytes}};
      receive(owner, answer_parts);
      if (acknowledged.timestamp + 1 != timestamp_ || answer.meta.timestamp != timestamp_ || answer.key != key)
        throw std::runtime_error("raw sockets: a wrong answer");
    }
  }

 private:
  std::vector<Fd> owners_;
  std::vector<float> pushed_, pulled_;
  std::uint32_t timestamp_ = 0;
};

using Table = std::unordered_map<std::uint64_t, std::vector<float>>;  // by key

/// An owner: one thread takes the requests of all workers in the order in which they have come as a whole.
class Server {
 public:
  explicit Server(std::size_t floats) : bytes_max_(2 * kHeadBytesMax + floats * sizeof(float)) {}

  void add_worker(Fd connection) { workers_.emplace_back(std::move(connection), bytes_max_); }

  /// Serves until all workers have ended. Returns the weights.
  Table run() {
    std::vector<Connection> workers = std::move(workers_);  // they are closed when it ends, also by an exception
    std::vector<pollfd> polled;
    for (const Connection& worker : workers) polled.push_back({worker.fd.get(), POLLIN, 0});
    for (std::size_t open = polled.size(); open > 0;) {
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) fail("poll");
      for (std::size_t i = 0; i < polled.size(); ++i) {
        if (polled[i].revents == 0 || take(workers[i])) continue;
        polled[i].fd = -1;  // poll() ignores it
        --open;
      }
    }
    return std::move(table_);
  }

 private:
  struct Connection {
    Connection(Fd connected, std::size_t bytes_max) : fd(std::move(connected)), bytes(bytes_max) {}
    Fd fd;
    std::vector<char> bytes;  ///< of requests that have come
    std::size_t count = 0;    ///< how many there are
  };

  /// Reads what there is, and handles requests that are whole. Returns false at the end of the stream.
  bool take(Connection& from) {
    const ssize_t got = recv(from.fd.get(), from.bytes.data() + from.count, from.bytes.size() - from.count,
                             MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) fail("recv");
    if (got <= 0) return got < 0;
    from.count += static_cast<std::size_t>(got);
    std::size_t handled = 0;
    while (const std::size_t bytes = handle(from, handled)) handled += bytes;
    from.count -= handled;
    std::memmove(from.bytes.data(), from.bytes.data() + handled, from.count);
    return true;
  }

  /// Handles the request that begins at `begin`. Returns its bytes, or 0 if it is not whole.
  std::size_t handle(Connection& from, std::size_t begin) {
    const char* const request = from.bytes.data() + begin;
    const std::size_t count = from.count - begin;
    Head head;
    if (count < sizeof head.meta) return 0;
    std::memcpy(&head.meta, request, sizeof head.meta);
    const std::size_t bytes = head.bytes() + head.meta.values * sizeof(float);
    if (count < bytes) return 0;
    std::memcpy(&head, request, head.bytes());
    std::vector<float>& weights = table_[head.key];
    iovec parts[2] = {{&head, sizeof head.meta}, {nullptr, 0}};
    if (head.meta.kind == Kind::push) {
      add(weights, request + head.bytes(), head.meta.values);
      head.meta = {Kind::push, head.meta.timestamp, 0, 0, 0};
    } else {
      head.meta = {Kind::pull, head.meta.timestamp, 1, 1, weights.size()};
      head.length = static_cast<std::uint32_t>(weights.size());
      parts[0].iov_len = head.bytes();
      parts[1] = {weights.data(), weights.size() * sizeof(float)};
    }
    send(from.fd, parts);
    return bytes;
  }

  static void add(std::vector<float>& weights, const char* bytes, std::size_t count) {
    weights.resize(std::max(weights.size(), count));
    const auto* const values = reinterpret_cast<const float*>(bytes);  // all parts are words of 4 bytes
    for (std::size_t i = 0; i < count; ++i) weights[i] += values[i];
  }

  std::size_t bytes_max_;
  std::vector<Connection> workers_;
  Table table_;
};

}  // namespace

double time_socket_store(const StoreLoad& load) {
  std::deque<Server> servers;
  for (int owner = 0; owner < load.owners; ++owner) servers.emplace_back(load.floats);
  std::vector<std::future<Table>> serving;
  double seconds = 0;
  {
    std::deque<Worker> workers;
    for (int rank = 0; rank < load.workers; ++rank) {
      Worker& worker = workers.emplace_back(load.floats);
      for (Server& server : servers) {
        auto [of_worker, of_owner] = connected();
        worker.add_owner(std::move(of_worker));
        server.add_worker(std::move(of_owner));
      }
    }
    for (Server& server : servers)
      serving.push_back(std::async(std::launch::async, [&server] { return server.run(); }));
    const auto run = [&](int pairs) {
      return time_all(load.workers, [&](int rank) { workers[static_cast<std::size_t>(rank)].run(load, rank, pairs); });
    };
    run(load.warm_up());
    seconds = run(load.pairs);
  }  // the workers' connections end, and so do the servers
  double sum = 0;
  for (std::future<Table>& one : serving) {
    for (const auto& [key, weights] : one.get()) {
      if (std::count(weights.begin(), weights.end(), weights[0]) == static_cast<std::ptrdiff_t>(load.floats))
        sum += static_cast<double>(weights[0]);
    }
  }
  if (sum != static_cast<double>(load.pushes())) throw std::runtime_error("raw sockets: the owners' sums are wrong");
  return seconds;
}

}  // namespace param_sync::baseline
