// How calls fail: with a documented code, in bounded time, on this connection alone.
#include "tests/conformance/party.cuh"
#include "tests/conformance/raw_listener.hpp"

#include <vector>

namespace gpusock::conformance::failures {
namespace {

Options small_options() {
  Options options;
  options.ring_bytes = 16 << 10;
  options.sockets_max = 8;
  options.connections_max = 16;
  return options;
}

template <class Scope>
class Failure : public testing::Test {
 protected:
  Party<Scope> party_{small_options()};
  Party<HostScope> other_{small_options()};
};

using Scopes = testing::Types<ThreadScope, WarpScope, BlockScope, HostScope>;
TYPED_TEST_SUITE(Failure, Scopes, ScopeName);

struct UseBadHandles {
  Report* report;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    char byte = 0;
    int which = 0;
    for (const Socket bad : {-1, 0, 12345678, 0x7fffffff}) {
      const bool all = net.send(group, bad, &byte, 1) == -EBADF && net.recv(group, bad, &byte, 1) == -EBADF &&
                       net.close(group, bad) == -EBADF && net.shutdown(group, bad, Shutdown::both) == -EBADF &&
                       net.accept(group, bad) == -EBADF;
      note(group, report, which++, all);
    }
  }
};

TYPED_TEST(Failure, AHandleThatWasNeverOpenGivesEBADF) {
  this->party_.start(UseBadHandles{&this->party_.report()});
  this->party_.join();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(this->party_.result(i), 1) << "handle " << i;
}

struct ListenTwice {
  Report* report;
  Endpoint at;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    char byte = 0;
    const Socket first = net.listen(group, at, 4, patience());
    Endpoint bound = at;
    net.getsockname(first, bound);
    bound.link = at.link;
    note(group, report, 0, first >= 0 && bound.port != 0);
    note(group, report, 1, net.listen(group, bound, 4, patience()));
    note(group, report, 2, net.send(group, first, &byte, 1));
    note(group, report, 3, net.recv(group, first, &byte, 1));
    note(group, report, 4, net.accept(group, first, Deadline::now()));
    note(group, report, 5, net.accept(group, first, Deadline::after_ns(2'000'000)));
    note(group, report, 6, net.listen(group, at, 0) == -EINVAL ? net.listen(group, at, 513) : 0);
    net.close(group, first);
    note(group, report, 7, net.accept(group, first));
  }
};

TYPED_TEST(Failure, AListenerIsNoStreamAndItsPortIsItsOwn) {
  this->party_.start(ListenTwice{&this->party_.report(), loopback(LinkKind::tcp)});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), 1) << "port 0 picks a port";
  EXPECT_EQ(this->party_.result(1), -EADDRINUSE);
  EXPECT_EQ(this->party_.result(2), -ENOTCONN);
  EXPECT_EQ(this->party_.result(3), -ENOTCONN);
  EXPECT_EQ(this->party_.result(4), -EAGAIN);
  EXPECT_EQ(this->party_.result(5), -ETIMEDOUT);
  EXPECT_EQ(this->party_.result(6), -EINVAL) << "backlog 0, and more than there is room for";
  EXPECT_EQ(this->party_.result(7), -EBADF) << "closed";
}

struct Connect {
  Report* report;
  Endpoint to;
  std::uint64_t timeout_ns;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    note(group, report, 0, net.connect(group, to, Deadline::after_ns(timeout_ns)));
    Endpoint nowhere = to;
    nowhere.family = 0;
    note(group, report, 1, net.connect(group, nowhere));
  }
};

TYPED_TEST(Failure, ConnectingWhereNobodyListensIsRefused) {
  RawListener closed;  // bound, so that the port is nobody else's, but not listening
  for (const LinkKind link : {LinkKind::tcp, LinkKind::automatic, LinkKind::p2p}) {
    this->party_.start(Connect{&this->party_.report(), closed.endpoint(link), kPatienceNs});
    this->party_.join();
    EXPECT_EQ(this->party_.result(0), -ECONNREFUSED) << to_string(link);
    EXPECT_EQ(this->party_.result(1), -EINVAL) << "no address";
  }
}

TYPED_TEST(Failure, APeerThatNeverAnswersTheHandshakeCostsTheDeadlineAndNoMore) {
  RawListener silent;
  silent.listen();
  const std::uint64_t start_ns = clock_ns();
  this->party_.start(Connect{&this->party_.report(), silent.endpoint(LinkKind::automatic), 20'000'000});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -ETIMEDOUT);
  EXPECT_GE(clock_ns() - start_ns, 20'000'000u);
}

TYPED_TEST(Failure, APeerThatHangsUpInTheHandshakeIsAReset) {
  RawListener rude;
  rude.listen();
  this->party_.start(Connect{&this->party_.report(), rude.endpoint(LinkKind::automatic), kPatienceNs});
  rude.answer_one("");
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -ECONNRESET);
}

/// Waits in every way there is until the context ends.
struct WaitForever {
  Report* report;
  Endpoint at;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    char byte = 0;
    const Socket listener = net.listen(group, at, 4, patience());
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    const Socket peer = net.accept(group, listener, patience());
    if (group.thread_rank() == 0) report->reached[0].raise();
    note(group, report, 0, net.recv(group, peer, &byte, 1));
    note(group, report, 1, net.accept(group, listener));
    note(group, report, 2, net.listen(group, at));
    note(group, report, 3, net.recv(group, peer, &byte, 1, kDontWait));
    note(group, report, 4, net.close(group, peer));
  }
};

struct HoldOpen {
  Flag* until;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net&, Socket, Report*) {
    until->wait(group);
  }
};

TYPED_TEST(Failure, EndingTheContextEndsEveryWaitAtOnce) {
  for (const LinkKind link : {LinkKind::tcp, LinkKind::p2p}) {
    Party<TypeParam> party(small_options());
    Party<HostScope> other(small_options());
    Mapped<Flag> done(other.context, 1);
    party.start(WaitForever{&party.report(), loopback(link)});
    ASSERT_TRUE(party.report().listening.wait());
    other.start(Visit<HoldOpen>{party.report().where, &other.report(), {done.data()}});
    ASSERT_TRUE(party.report().reached[0].wait());
    party.context.cancel();
    party.join();
    done[0].raise();
    other.join();
    EXPECT_EQ(party.result(0), -ECANCELED) << "recv";
    EXPECT_EQ(party.result(1), -ECANCELED) << "accept";
    EXPECT_EQ(party.result(2), -ECANCELED) << "listen";
    EXPECT_EQ(party.result(3), -ECANCELED) << "recv without waiting";
    EXPECT_EQ(party.result(4), 0) << "close works as ever";
  }
}

/// Opens all sockets there are and closes them, many times over.
struct OpenAll {
  static constexpr int kMost = 8;  // small_options().sockets_max
  Report* report;
  Endpoint at;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    Socket open[kMost];
    Socket stale = -1;
    std::int64_t reused = 0, not_bad = 0;
    int round = 0;
    for (; round < 100 && fill(group, net, open); ++round) {
      for (const Socket socket : open) reused += socket == stale;
      if (round == 0) note(group, report, 0, net.listen(group, at, 1));
      stale = open[0];
      for (const Socket socket : open) not_bad += net.close(group, socket) != 0;
      not_bad += net.close(group, stale) != -EBADF;
    }
    note(group, report, 1, round);
    note(group, report, 2, reused);
    note(group, report, 3, not_bad);
  }

  /// Opens kMost sockets; a closed one comes back when the proxy has seen that, so this may take several tries.
  template <class Group>
  GPUSOCK_FN bool fill(const Group& group, const Net& net, Socket (&open)[kMost]) {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    for (int count = 0; count < kMost;) {
      open[count] = net.listen(group, at, 1, patience());
      if (open[count] >= 0) {
        ++count;
      } else if (open[count] != -EMFILE || clock_ns() > until_ns) {
        return false;
      } else {
        pause();
      }
    }
    return true;
  }
};

TYPED_TEST(Failure, AFullTableIsSaidSoAndEverySlotComesBackUnderAnotherHandle) {
  this->party_.start(OpenAll{&this->party_.report(), loopback(LinkKind::tcp)});
  this->party_.join();
  EXPECT_EQ(this->party_.result(0), -EMFILE);
  EXPECT_EQ(this->party_.result(1), 100) << "rounds";
  EXPECT_EQ(this->party_.result(2), 0) << "handles used again at once";
  EXPECT_EQ(this->party_.result(3), 0) << "closes that went wrong";
}

struct SendUntilItFails {
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    char byte = 0;
    note(group, report, 0, net.recv(group, socket, &byte, 1, 0, patience()));
    std::int64_t result = 0;
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    do {
      result = net.send(group, socket, &byte, 1, 0, patience());
    } while (result == 1 && clock_ns() < until_ns);
    note(group, report, 1, result);
  }
};

struct LeaveAtOnce {
  template <class Group>
  GPUSOCK_FN void operator()(const Group&, const Net&, Socket, Report*) {}
};

TYPED_TEST(Failure, SendingToAPeerThatClosedFails) {
  for (const LinkKind link : {LinkKind::tcp, LinkKind::p2p}) {
    Party<TypeParam> party(small_options());
    Party<HostScope> other(small_options());
    converse(party, other, link, SendUntilItFails{}, LeaveAtOnce{});
    EXPECT_EQ(party.result(0), 0) << "the end of the stream, on " << to_string(link);
    EXPECT_TRUE(party.result(1) == -EPIPE || party.result(1) == -ECONNRESET)
        << party.result(1) << " on " << to_string(link);
  }
}

TYPED_TEST(Failure, ListeningBeyondLoopbackNeedsASecretOrLinkTcpByName) {
  const auto listen_at = [](const Options& options, const char* where) {
    Party<TypeParam> party(options);
    party.start(ListenTwice{&party.report(), Endpoint::parse(where)});
    party.join();
    return std::pair(party.result(0), party.result(1));
  };
  Options options = small_options();
  EXPECT_EQ(listen_at(options, "0.0.0.0:0,link=auto"), std::pair(std::int64_t{0}, std::int64_t{-EACCES}));
  EXPECT_EQ(listen_at(options, "0.0.0.0:0,link=tcp").first, 1);
  options.secret = "swordfish";
  EXPECT_EQ(listen_at(options, "0.0.0.0:0,link=auto").first, 1);
}

/// What connecting gives when the two contexts' secrets are these.
template <class Scope>
std::int64_t connect_with_secrets(const std::string& ours, const std::string& theirs) {
  Options mine = small_options(), yours = small_options();
  mine.secret = ours;
  yours.secret = theirs;
  Party<Scope> client(mine);
  Party<HostScope> server(yours);
  Mapped<Flag> done(server.context, 1);
  server.start(Serve<HoldOpen>{loopback(LinkKind::automatic), &server.report(), {done.data()}});
  EXPECT_TRUE(server.report().listening.wait());
  client.start(Connect{&client.report(), server.report().where, kPatienceNs});
  client.join();
  const std::int64_t result = client.result(0);
  done[0].raise();
  server.context.cancel();
  server.join();
  return result;
}

TYPED_TEST(Failure, PeersWithOtherSecretsAreRefusedAndEqualOnesConnect) {
  EXPECT_GE(connect_with_secrets<TypeParam>("swordfish", "swordfish"), 0);
  EXPECT_EQ(connect_with_secrets<TypeParam>("swordfish", "halibut"), -EACCES);
  EXPECT_EQ(connect_with_secrets<TypeParam>("", "swordfish"), -EACCES);
  EXPECT_EQ(connect_with_secrets<TypeParam>("swordfish", ""), -EACCES);
}

/// Every block accepts on one listener, and answers one byte.
__global__ void serve_from_every_block(Net net, Socket listener, int each, std::int64_t* served) {
  const auto block = this_block();
  __shared__ char byte[1];
  for (int i = 0; i < each; ++i) {
    const Socket peer = net.accept(block, listener, patience());
    if (peer < 0) return;
    if (net.recv(block, peer, byte, 1, 0, patience()) == 1) net.send(block, peer, byte, 1, kWaitAll, patience());
    if (threadIdx.x == 0) served[blockIdx.x] += 1;
    net.close(block, peer);
  }
}

__global__ void open_listener(Net net, Endpoint at, Socket* listener, Endpoint* where) {
  *listener = net.listen(this_thread(), at, 16, patience());
  net.getsockname(*listener, *where);
}

TEST(Accepting, ManyBlocksServeOneListenerThatAnotherKernelOpened) {
  constexpr int kBlocks = 4, kEach = 5;
  for (const LinkKind link : {LinkKind::tcp, LinkKind::automatic}) {
    Options options = small_options();
    options.sockets_max = 32;
    options.connections_max = 32;
    Context server(options), client(options);
    Mapped<Socket> listener(server, 1);
    Mapped<Endpoint> where(server, 1);
    Mapped<std::int64_t> served(server, kBlocks);
    launch(server, {.grid = 1, .block = 1}, open_listener, server.net(), loopback(link), listener.data(), where.data());
    server.synchronize();
    ASSERT_GE(listener[0], 0);
    launch(server, {.grid = kBlocks, .block = 64}, serve_from_every_block, server.net(), listener[0], kEach,
           served.data());
    const Net net = client.net();
    std::vector<Socket> open;
    for (int i = 0; i < kBlocks * kEach; ++i) {
      open.push_back(net.connect(this_thread(), where[0], patience()));
      ASSERT_GE(open.back(), 0);
      const char byte = static_cast<char>(i);
      ASSERT_EQ(net.send(this_thread(), open.back(), &byte, 1, kWaitAll, patience()), 1);
    }
    for (int i = 0; i < kBlocks * kEach; ++i) {
      char byte = 0;
      ASSERT_EQ(net.recv(this_thread(), open[i], &byte, 1, kWaitAll, patience()), 1) << "client " << i;
      EXPECT_EQ(byte, static_cast<char>(i));
      net.close(this_thread(), open[i]);
    }
    server.synchronize();
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(served[i], kEach) << "block " << i;
  }
}

/// Every block accepts a connection, and opens one; the grid has three dimensions.
__global__ void open_in_every_block(Net net, Socket listener, Endpoint to, Socket* accepted, Socket* connected) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const Socket mine = net.accept(this_block(), listener, patience());
  const Socket other = net.connect(this_block(), to, patience());
  if (threadIdx.x != 0) return;
  accepted[block] = mine;
  connected[block] = other;
}

/// The block in Context::sockets(), once the proxy has seen the caller's request; -2 if there is no such socket.
std::int64_t block_of(const Context& context, Socket socket) {
  for (const std::uint64_t until_ns = clock_ns() + kPatienceNs;; pause()) {
    for (const SocketInfo& info : context.sockets()) {
      if (info.handle != socket) continue;
      if (info.state != SocketState::waiting && info.state != SocketState::opening) return info.block;
    }
    if (clock_ns() > until_ns) return -2;
  }
}

TEST(SocketInfo, NamesTheBlockThatOpenedOrAcceptedASocket) {
  constexpr unsigned kX = 2, kY = 3, kZ = 2, kBlocks = kX * kY * kZ;
  Options options = small_options();
  options.sockets_max = 3 * kBlocks;
  options.connections_max = 3 * kBlocks;
  Context server(options), peer(options);
  const Net net = peer.net();
  Mapped<Socket> listener(server, 1);
  Mapped<Endpoint> where(server, 1);
  Mapped<Socket> accepted(server, kBlocks), connected(server, kBlocks);
  const Socket theirs = net.listen(this_thread(), loopback(LinkKind::tcp), kBlocks, patience());
  Endpoint to;
  ASSERT_EQ(net.getsockname(theirs, to), 0);
  launch(server, {.grid = 1, .block = 1}, open_listener, server.net(), loopback(LinkKind::tcp), listener.data(),
         where.data());
  server.synchronize();
  ASSERT_GE(listener[0], 0);
  launch(server, {.grid = {kX, kY, kZ}, .block = 32}, open_in_every_block, server.net(), listener[0], to,
         accepted.data(), connected.data());
  const Socket visitor = net.connect(this_thread(), where[0], patience());
  ASSERT_GE(visitor, 0);
  for (unsigned i = 1; i < kBlocks; ++i) ASSERT_GE(net.connect(this_thread(), where[0], patience()), 0);
  server.synchronize();
  EXPECT_EQ(block_of(server, listener[0]), 0);
  for (unsigned i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(block_of(server, accepted[i]), i);
    EXPECT_EQ(block_of(server, connected[i]), i);
  }
  EXPECT_EQ(block_of(peer, theirs), -1) << "a host thread";
  EXPECT_EQ(block_of(peer, visitor), -1) << "a host thread";
}

TEST(Accepting, ClosingAListenerGivesBackWhatNobodyAccepted) {
  for (const LinkKind link : {LinkKind::tcp, LinkKind::p2p}) {
    constexpr int kAll = 4;
    Options options = from_environment(small_options());
    options.sockets_max = kAll;
    Context server(options), client(from_environment(small_options()));
    const Net net = server.net(), peer = client.net();
    const Socket other = net.listen(this_thread(), loopback(link), kAll, patience());
    Endpoint where, other_where;
    ASSERT_EQ(net.getsockname(other, other_where), 0);
    for (int round = 0; round < 10; ++round) {
      Socket listener = -EMFILE;
      const std::uint64_t until_ns = clock_ns() + kPatienceNs;
      while (listener == -EMFILE && clock_ns() < until_ns)
        listener = net.listen(this_thread(), loopback(link), kAll, patience());
      ASSERT_EQ(net.getsockname(listener, where), 0);
      std::vector<Socket> open;
      const std::uint64_t before = server.stats().connections;
      for (int i = 0; i < kAll; ++i) {
        open.push_back(peer.connect(this_thread(), where, patience()));
        ASSERT_GE(open.back(), 0) << "connection " << i << " of round " << round << " on " << to_string(link);
      }
      while (server.stats().connections < before + kAll && clock_ns() < until_ns) pause();  // all are in the queue
      ASSERT_EQ(server.stats().connections, before + kAll);
      net.close(this_thread(), listener);
      char byte = 0;
      for (const Socket socket : open) {
        const auto end = peer.recv(this_thread(), socket, &byte, 1, 0, patience());
        EXPECT_TRUE(end == 0 || end == -ECONNRESET) << end;
        peer.close(this_thread(), socket);
      }
      std::vector<Socket> accepted;  // as many as there are slots: the others' have come back
      open.clear();
      for (int i = 0; i < kAll; ++i) {
        Socket socket = -EMFILE;
        while (socket == -EMFILE && clock_ns() < until_ns)
          socket = peer.connect(this_thread(), other_where, patience());
        open.push_back(socket);
        accepted.push_back(net.accept(this_thread(), other, patience()));
        ASSERT_GE(accepted.back(), 0) << "round " << round << " on " << to_string(link);
      }
      for (const Socket socket : accepted) net.close(this_thread(), socket);
      for (const Socket socket : open) peer.close(this_thread(), socket);
    }
  }
}

}  // namespace
}  // namespace gpusock::conformance::failures
