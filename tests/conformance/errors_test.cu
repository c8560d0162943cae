// Each error that a socket call's docstring lists is one that the call returns. (checked_net.cuh has the converse: a
// call returns no other error in any test of this folder.) Host threads on both ends.
#include "tests/conformance/party.cuh"
#include "tests/conformance/raw_listener.hpp"

#include <cerrno>
#include <thread>
#include <vector>

namespace gpusock::conformance::errors {
namespace {

/// What this test does not bring about, and why. "": any call.
constexpr struct {
  std::string_view call;
  int error;
  const char* why;
} kNotHere[] = {
    {"", ENOMEM, "simulation --shortages lets memory run out"},
    {"", EIO, "a CUDA copy must fail"},
    {"listen", EAGAIN, "the proxy must be stalled"},
    {"listen", ETIMEDOUT, "the proxy must be stalled"},
    {"listen", EAFNOSUPPORT, "the host must be without IPv6"},
    {"listen", ENOBUFS, "contexts_test: a device must pin rings"},
    {"connect", EAFNOSUPPORT, "the host must be without IPv6"},
    {"connect", EADDRNOTAVAIL, "the host must be out of ports"},
    {"connect", EHOSTUNREACH, "needs another host"},
    {"connect", ENETUNREACH, "the host must have no route"},
    {"connect", ENODEV, "depends on the host's NICs"},
    {"connect", ENOBUFS, "ring memory must run out"},
    {"commit", ETIMEDOUT, "idle_timeout_test lets a connection be idle for too long"},
    {"commit", EPROTO, "the proxy must notice before the caller does"},
};

Options options_of(std::uint32_t sockets_max = 8) {
  Options options;
  options.ring_bytes = 16 << 10;
  options.sockets_max = sockets_max;
  return options;
}

/// A context with a listener and a connection to it.
class Connected {
 public:
  explicit Connected(const char* suffix) {
    const Endpoint any = Endpoint::parse(std::string("127.0.0.1:0,") + suffix);
    listener = net.listen(this_thread(), any, 4, patience());
    EXPECT_EQ(net.getsockname(listener, where), 0);
    where.link = any.link;
    where.type = any.type;
    near = net.connect(this_thread(), where, patience());
    far = net.accept(this_thread(), listener, patience());
    EXPECT_TRUE(near >= 0 && far >= 0) << near << " " << far;
  }

  /// All that waits for bytes or room; `error` is what each call is to return.
  void expect_of_receiving(int error, int flags = 0, Deadline deadline = patience()) {
    char byte = 0;
    EXPECT_EQ(net.recv(this_thread(), near, &byte, 1, flags, deadline), -error);
    EXPECT_EQ(net.peek(this_thread(), near, 1, deadline).size, -error);
  }
  void expect_of_sending(int error, int flags = 0, Deadline deadline = patience()) {
    const char byte = 0;
    EXPECT_EQ(net.send(this_thread(), near, &byte, 1, flags, deadline), -error);
    EXPECT_EQ(net.reserve(this_thread(), near, 1, deadline).size, -error);
  }
  /// The peer's callers do not receive: on p2p nothing else takes bytes out of the ring.
  void fill_tx() {
    const char bytes[4096] = {};
    while (net.send(this_thread(), near, bytes, sizeof bytes, kDontWait) > 0) {
    }
  }
  table::RingPair rings() { return detail::NetAccess::side(net).table.setups[table::slot_of(near)].rings; }

  Context context{options_of()};
  Net net = context.net();
  Socket listener = -1, near = -1, far = -1;
  Endpoint where;
};

void use_bad_handles(const Net& net) {
  char byte = 0;
  Endpoint endpoint;
  SocketStats stats;
  std::int64_t value = 0;
  const auto self = this_thread();
  for (const std::int64_t result :
       {std::int64_t{net.accept(self, -1)}, net.send(self, -1, &byte, 1), net.recv(self, -1, &byte, 1),
        net.reserve(self, -1, 1).size, std::int64_t{net.commit(self, -1, 1)}, std::int64_t{net.abort(self, -1)},
        net.peek(self, -1, 1).size, std::int64_t{net.release(self, -1, 1)},
        std::int64_t{net.shutdown(self, -1, Shutdown::both)}, std::int64_t{net.close(self, -1)},
        std::int64_t{net.getsockname(-1, endpoint)}, std::int64_t{net.getpeername(-1, endpoint)},
        std::int64_t{net.setsockopt(self, -1, SocketOption::linger, 1)},
        std::int64_t{net.getsockopt(self, -1, SocketOption::linger, value)}, std::int64_t{net.stats(-1, stats)}}) {
    EXPECT_EQ(result, -EBADF);
  }
}

void use_a_listener_as_a_connection(const Net& net, Socket listener) {
  char byte = 0;
  Endpoint endpoint;
  SocketStats stats;
  std::int64_t value = 0;
  const auto self = this_thread();
  for (const std::int64_t result :
       {net.send(self, listener, &byte, 1), net.recv(self, listener, &byte, 1), net.reserve(self, listener, 1).size,
        net.peek(self, listener, 1).size, std::int64_t{net.shutdown(self, listener, Shutdown::both)},
        std::int64_t{net.getpeername(listener, endpoint)},
        std::int64_t{net.getsockopt(self, listener, SocketOption::send_buffer, value)},
        std::int64_t{net.stats(listener, stats)}}) {
    EXPECT_EQ(result, -ENOTCONN);
  }
}

void pass_invalid_arguments(Connected& at) {
  const auto self = this_thread();
  const Net& net = at.net;
  EXPECT_EQ(net.listen(self, at.where, 0), -EINVAL) << "backlog";
  EXPECT_EQ(net.connect(self, Endpoint()), -EINVAL) << "no address";
  EXPECT_EQ(net.accept(self, at.near), -EINVAL) << "not a listener";
  char byte = 0;
  const std::int64_t error = net.recv(self, at.near, &byte, 1, kDontWait);
  ASSERT_EQ(error, -EAGAIN) << "the usual slip: a result that nobody has checked is the next call's size";
  EXPECT_EQ(net.send(self, at.near, &byte, static_cast<std::size_t>(error)), -EINVAL);
  EXPECT_EQ(net.recv(self, at.near, &byte, static_cast<std::size_t>(error)), -EINVAL);
  EXPECT_EQ(net.reserve(self, at.near, 0).size, -EINVAL);
  EXPECT_EQ(net.commit(self, at.near, 1), -EINVAL);
  EXPECT_EQ(net.abort(self, at.near), -EINVAL);
  EXPECT_EQ(net.peek(self, at.near, 0).size, -EINVAL);
  EXPECT_EQ(net.release(self, at.near, 1), -EINVAL);
  EXPECT_EQ(net.poll(self, nullptr, -1), -EINVAL);
  EXPECT_EQ(net.shutdown(self, at.near, static_cast<Shutdown>(0)), -EINVAL);
  EXPECT_EQ(net.setsockopt(self, at.near, SocketOption::linger, -2), -EINVAL);
  std::int64_t value = 0;
  constexpr auto kNone = static_cast<SocketOption>(99);
  EXPECT_EQ(net.setsockopt(self, at.near, kNone, 0), -ENOPROTOOPT);
  EXPECT_EQ(net.getsockopt(self, at.near, kNone, value), -ENOPROTOOPT);
}

void wait_in_vain() {
  Connected at("link=p2p");
  RawListener silent;
  silent.listen();
  const auto self = this_thread();
  const auto soon = [] { return Deadline::after_ns(1'000'000); };
  at.fill_tx();
  at.expect_of_sending(EAGAIN, kDontWait, Deadline::now());
  at.expect_of_sending(ETIMEDOUT, 0, soon());
  at.expect_of_receiving(EAGAIN, kDontWait, Deadline::now());
  at.expect_of_receiving(ETIMEDOUT, 0, soon());
  EXPECT_EQ(at.net.accept(self, at.listener, Deadline::now()), -EAGAIN);
  EXPECT_EQ(at.net.accept(self, at.listener, soon()), -ETIMEDOUT);
  EXPECT_EQ(at.net.connect(self, silent.endpoint(LinkKind::automatic), Deadline::now()), -EAGAIN);
  EXPECT_EQ(at.net.connect(self, silent.endpoint(LinkKind::automatic), soon()), -ETIMEDOUT);
}

/// A reservation and a peek are open, then this direction is ended.
void send_while_something_is_open() {
  Connected at("link=p2p");
  const auto self = this_thread();
  ASSERT_EQ(at.net.send(self, at.far, "x", 1, 0, patience()), 1);
  ASSERT_EQ(at.net.peek(self, at.near, 1, patience()).size, 1);
  at.expect_of_receiving(EBUSY);
  ASSERT_EQ(at.net.reserve(self, at.near, 1, patience()).size, 1);
  at.expect_of_sending(EBUSY);
  ASSERT_EQ(at.net.shutdown(self, at.near, Shutdown::write), 0);
  EXPECT_EQ(at.net.commit(self, at.near, 1), -EPIPE);
  at.expect_of_sending(EPIPE);
}

void lose_the_peer() {
  Connected at("link=tcp");
  const auto self = this_thread();
  ASSERT_EQ(at.net.reserve(self, at.near, 1, patience()).size, 1);
  ASSERT_EQ(at.net.setsockopt(self, at.far, SocketOption::linger, 0), 0);
  ASSERT_EQ(at.net.close(self, at.far), 0);  // a reset
  at.expect_of_receiving(ECONNRESET);
  EXPECT_EQ(at.net.accept(self, at.near), -EINVAL) << "not a listener, whatever became of it";
  EXPECT_EQ(at.net.commit(self, at.near, 1), -ECONNRESET);
  at.expect_of_sending(ECONNRESET);
}

void use_sets(Connected& at) {
  const auto self = this_thread();
  const Net& net = at.net;
  PollEvent event;
  EXPECT_EQ(net.watch(self, -1, at.near, kPollIn), -EBADF);
  EXPECT_EQ(net.unwatch(self, 0, at.near), -EBADF);
  EXPECT_EQ(net.wait(self, 12345, &event, 1), -EBADF);
  EXPECT_EQ(net.wake(self, -1), -EBADF);
  EXPECT_EQ(net.close_set(self, 0), -EBADF);
  std::vector<PollSet> sets;
  PollSet set = 0;
  while ((set = net.open_set(self)) >= 0) sets.push_back(set);
  EXPECT_EQ(set, -EMFILE);
  EXPECT_EQ(sets.size(), at.context.options().sockets_max);
  EXPECT_EQ(net.watch(self, sets[0], -1, kPollIn), -EBADF);
  EXPECT_EQ(net.watch(self, sets[0], at.near, kPollErr), -EINVAL);
  EXPECT_EQ(net.unwatch(self, sets[0], at.near), -ENOENT);
  EXPECT_EQ(net.watch(self, sets[0], at.near, kPollIn), 0);
  EXPECT_EQ(net.watch(self, sets[1], at.near, kPollIn), -EBUSY);
  EXPECT_EQ(net.wait(self, sets[0], nullptr, 1), -EINVAL);
  EXPECT_EQ(net.wait(self, sets[0], &event, 0), -EINVAL);
  std::thread other([&] {
    int result = -EBUSY;
    while (result == -EBUSY) result = net.wait(self, sets[0], &event, 1, patience());
    EXPECT_EQ(result, -EBADF);
  });
  PollEvent mine;
  int result = 0;
  while ((result = net.wait(self, sets[0], &mine, 1, Deadline::now())) == 0) {
  }
  EXPECT_EQ(result, -EBUSY);
  for (const PollSet each : sets) EXPECT_EQ(net.close_set(self, each), 0);
  other.join();
}

/// The words of the ring that the peer writes say what cannot be.
void meet_a_peer_that_breaks_the_protocol() {
  Connected at("link=p2p");
  at.fill_tx();
  detail::SystemRef(*at.rings().tx.consumed).store(std::uint64_t{1} << 40, ringbuf::kRelaxed);
  at.expect_of_sending(EPROTO);
  detail::SystemRef(*at.rings().rx.committed).store(std::uint64_t{1} << 40, ringbuf::kRelaxed);
  at.expect_of_receiving(EPROTO);
}

void send_long_records() {
  Connected at("link=p2p,type=seqpacket");
  const auto self = this_thread();
  const char much[8 << 10] = {};
  EXPECT_EQ(at.net.send(self, at.near, much, sizeof much), -EMSGSIZE);
  EXPECT_EQ(at.net.reserve(self, at.near, sizeof much).size, -EMSGSIZE);
  ASSERT_EQ(at.net.send(self, at.far, much, 2, 0, patience()), 2);
  EXPECT_EQ(at.net.peek(self, at.near, 1, patience()).size, -EMSGSIZE);
}

void end_the_context() {
  Connected at("link=p2p");
  const auto self = this_thread();
  ASSERT_EQ(at.net.reserve(self, at.near, 1, patience()).size, 1);
  const PollSet set = at.net.open_set(self);
  PollEvent event;
  at.context.cancel();
  std::int64_t error = 0;
  EXPECT_EQ(at.net.getsockopt(self, at.near, SocketOption::error, error), 0);  // a look: sending need not make one
  EXPECT_EQ(at.net.open_set(self), -ECANCELED);
  EXPECT_EQ(at.net.wait(self, set, &event, 1), -ECANCELED);
  EXPECT_EQ(at.net.commit(self, at.near, 1), -ECANCELED);
  at.expect_of_sending(ECANCELED);
  at.expect_of_receiving(ECANCELED);
  EXPECT_EQ(at.net.listen(self, at.where), -ECANCELED);
  EXPECT_EQ(at.net.accept(self, at.listener), -ECANCELED);
  EXPECT_EQ(at.net.connect(self, at.where), -ECANCELED);
  EXPECT_EQ(at.net.poll(self, nullptr, 0), -ECANCELED);
}

void listen_where_that_fails() {
  Options options = options_of(1);
  options.p2p = false;
  Context context(options);
  const Net net = context.net();
  const auto self = this_thread();
  const auto listen = [&](const char* at) {  // a failed one's slot in the table comes back in a moment
    std::int64_t result = -EMFILE;
    for (const std::uint64_t until_ns = clock_ns() + kPatienceNs; result == -EMFILE && clock_ns() < until_ns;) {
      result = net.listen(self, Endpoint::parse(at), 4, patience());
    }
    return result;
  };
  RawListener busy;
  EXPECT_EQ(listen(busy.endpoint(LinkKind::tcp).to_string().c_str()), -EADDRINUSE);
  EXPECT_EQ(listen("192.0.2.1:0,link=tcp"), -EADDRNOTAVAIL) << "an address for documentation";
  EXPECT_EQ(listen("0.0.0.0:0,link=auto"), -EACCES) << "no secret";
  EXPECT_EQ(listen("127.0.0.1:0,link=p2p"), -EPROTONOSUPPORT);
  ASSERT_GE(listen("127.0.0.1:0,link=tcp"), 0);
  EXPECT_EQ(net.listen(self, Endpoint::parse("127.0.0.1:0,link=tcp")), -EMFILE);
  EXPECT_EQ(net.connect(self, busy.endpoint(LinkKind::tcp)), -EMFILE);
}

void connect_where_that_fails(Connected& server) {
  Options options = options_of();
  options.p2p = false;
  options.secret = "another";
  Context context(options);
  const Net net = context.net();
  const auto self = this_thread();
  RawListener closed, open;
  open.listen();
  EXPECT_EQ(net.connect(self, closed.endpoint(LinkKind::tcp), patience()), -ECONNREFUSED);
  EXPECT_EQ(net.connect(self, open.endpoint(LinkKind::p2p), patience()), -EPROTONOSUPPORT);
  EXPECT_EQ(net.connect(self, server.where, patience()), -EACCES);
  Endpoint records = server.where;
  records.type = SocketType::seqpacket;
  EXPECT_EQ(server.net.connect(self, records, patience()), -EPROTOTYPE);
  for (const auto& [answer, error] : {std::pair("", ECONNRESET), std::pair("HTTP/1.1 400 Bad Request", EPROTO)}) {
    RawListener other;
    other.listen();
    std::thread peer([&, text = answer] { other.answer_one(text); });
    EXPECT_EQ(net.connect(self, other.endpoint(LinkKind::automatic), patience()), -error);
    peer.join();
  }
}

TEST(Errors, EachCallReturnsEachErrorThatItsDocstringLists) {
  for (auto& each : returned) each = false;
  {
    Connected connected("link=auto");
    use_bad_handles(connected.net);
    use_a_listener_as_a_connection(connected.net, connected.listener);
    pass_invalid_arguments(connected);
    use_sets(connected);
    connect_where_that_fails(connected);
  }
  wait_in_vain();
  send_while_something_is_open();
  lose_the_peer();
  meet_a_peer_that_breaks_the_protocol();
  send_long_records();
  end_the_context();
  listen_where_that_fails();
  for (std::size_t i = 0; i < std::size(kListed); ++i) {
    const Listed& listed = kListed[i];
    const bool left_out = std::any_of(std::begin(kNotHere), std::end(kNotHere), [&](const auto& entry) {
      return entry.error == listed.error && (entry.call.empty() || entry.call == listed.call);
    });
    EXPECT_TRUE(returned[i] || left_out) << "no " << listed.call << " returned errno " << listed.error << " ("
                                         << strerror(listed.error) << ")";
    EXPECT_FALSE(returned[i] && left_out) << listed.call << " did return errno " << listed.error;
  }
}

}  // namespace
}  // namespace gpusock::conformance::errors
