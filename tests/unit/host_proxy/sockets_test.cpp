// Context::sockets(): every socket as it stands, with the bytes that went through it.
#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock {
namespace {

Options small_context() {
  Options options;
  options.sockets_max = 64;
  return options;
}

SocketInfo find_socket(const Context& context, Socket handle) {
  for (const SocketInfo& info : context.sockets()) {
    if (info.handle == handle) return info;
  }
  return {};
}

/// Looks until the condition holds for this socket; the last look where it never does.
template <class Condition>
SocketInfo wait_for(const Context& context, Socket handle, Condition holds) {
  for (const Deadline until = patience();;) {
    const SocketInfo info = find_socket(context, handle);
    if (holds(info) || until.passed()) return info;
    std::this_thread::yield();
  }
}

/// Two contexts, connected; the server has not accepted yet.
class Sockets : public testing::TestWithParam<LinkKind> {
 protected:
  Sockets() {
    Endpoint at = Endpoint::parse("127.0.0.1:0,link=tcp");
    at.link = GetParam();
    listener_ = ours_.listen(this_thread(), at, 7, patience());
    EXPECT_EQ(ours_.getsockname(listener_, at_), 0);
    at_.link = GetParam();
    visitor_ = theirs_.connect(this_thread(), at_, patience());
    EXPECT_GE(visitor_, 0);
  }
  void accept() {
    peer_ = ours_.accept(this_thread(), listener_, patience());
    ASSERT_GE(peer_, 0);
  }

  Context server_{small_context()}, client_{small_context()};
  Net ours_ = server_.net(), theirs_ = client_.net();
  Endpoint at_;
  Socket listener_ = -1, visitor_ = -1, peer_ = -1;
};

TEST_P(Sockets, AListenerSaysWhereItListensAndHowManyWait) {
  SocketInfo info = wait_for(server_, listener_, [](const SocketInfo& now) { return now.pending == 1; });
  EXPECT_EQ(info.state, SocketState::listening);
  EXPECT_EQ(info.local.host_port(), at_.host_port());
  EXPECT_EQ(info.peer.family, 0);
  EXPECT_EQ(info.link, GetParam());
  EXPECT_EQ(info.backlog, 7u);
  EXPECT_EQ(info.pending, 1u);
  accept();
  info = wait_for(server_, listener_, [](const SocketInfo& now) { return now.pending == 0; });
  EXPECT_EQ(info.pending, 0u);
}

TEST(SocketsOfRecords, HaveTheHandlesThatTheirCallersPass) {
  Context server{small_context()}, client{small_context()};
  const Net ours = server.net(), theirs = client.net();
  Endpoint at = Endpoint::parse("127.0.0.1:0").with_type(SocketType::seqpacket), bound;
  const Socket listener = ours.listen(this_thread(), at, 7, patience());
  ASSERT_EQ(ours.getsockname(listener, bound), 0);
  const Socket visitor = theirs.connect(this_thread(), bound.with_type(SocketType::seqpacket), patience());
  const Socket peer = ours.accept(this_thread(), listener, patience());
  ASSERT_GE(visitor, 0);
  ASSERT_GE(peer, 0);
  EXPECT_EQ(find_socket(client, visitor).state, SocketState::connected);
  const SocketInfo info = wait_for(server, peer,
                                   [](const SocketInfo& now) { return now.state == SocketState::connected; });
  EXPECT_EQ(info.state, SocketState::connected);
}

TEST_P(Sockets, AConnectionIsWaitingUntilItIsAccepted) {
  const auto count = [&](SocketState state) {
    const auto all = server_.sockets();
    return std::count_if(all.begin(), all.end(), [&](const SocketInfo& info) { return info.state == state; });
  };
  const Deadline until = patience();
  while (count(SocketState::waiting) != 1 && !until.passed()) std::this_thread::yield();
  EXPECT_EQ(count(SocketState::waiting), 1);
  EXPECT_EQ(count(SocketState::connected), 0);
  accept();
  const SocketInfo info = wait_for(server_, peer_,
                                   [](const SocketInfo& now) { return now.state == SocketState::connected; });
  EXPECT_EQ(info.state, SocketState::connected);
  EXPECT_EQ(info.local.host_port(), at_.host_port());
  EXPECT_EQ(info.link, GetParam());
  const SocketInfo other = find_socket(client_, visitor_);
  EXPECT_EQ(other.peer.host_port(), at_.host_port());
  EXPECT_EQ(other.local.host_port(), info.peer.host_port());
  EXPECT_EQ(client_.sockets().size(), 1u);
}

TEST_P(Sockets, BytesAreCountedAndRingsSayHowFullTheyAre) {
  constexpr std::uint64_t kBytes = 3000;
  accept();
  char data[kBytes] = {};
  ASSERT_EQ(theirs_.send(this_thread(), visitor_, data, kBytes, kWaitAll, patience()), std::int64_t{kBytes});
  const auto arrived = [](const SocketInfo& now) { return now.rx_bytes == kBytes; };
  SocketInfo info = wait_for(server_, peer_, arrived);
  EXPECT_EQ(info.rx_bytes, kBytes);
  EXPECT_EQ(info.rx_ring_fill, kBytes);
  EXPECT_EQ(info.tx_bytes, 0u);
  EXPECT_GE(info.ring_bytes, kBytes);
  SocketInfo other = find_socket(client_, visitor_);
  EXPECT_EQ(other.tx_bytes, kBytes);
  EXPECT_EQ(other.tx_ring_fill, GetParam() == LinkKind::p2p ? kBytes : 0) << "on p2p they are one ring";
  EXPECT_EQ(other.rx_bytes, 0u);

  ASSERT_EQ(ours_.recv(this_thread(), peer_, data, kBytes, kWaitAll, patience()), std::int64_t{kBytes});
  info = find_socket(server_, peer_);
  EXPECT_EQ(info.rx_bytes, kBytes) << "what was read has still arrived";
  EXPECT_EQ(info.rx_ring_fill, 0u);
  EXPECT_EQ(find_socket(client_, visitor_).tx_ring_fill, 0u);
}

TEST_P(Sockets, AFullRingIsFull) {
  accept();
  std::vector<char> data(1 << 20);
  const auto rx_full = [](const SocketInfo& info) {
    return info.ring_bytes != 0 && info.rx_ring_fill == info.ring_bytes;
  };
  const auto tx_full = [](const SocketInfo& info) {
    return info.ring_bytes != 0 && info.tx_ring_fill == info.ring_bytes;
  };
  const Deadline until = patience();
  while (!(rx_full(find_socket(server_, peer_)) && tx_full(find_socket(client_, visitor_))) && !until.passed()) {
    ASSERT_NE(theirs_.send(this_thread(), visitor_, data.data(), data.size(), 0, Deadline::after_ns(1'000'000)),
              -ECONNRESET);
  }
  EXPECT_TRUE(rx_full(find_socket(server_, peer_)));
  EXPECT_TRUE(tx_full(find_socket(client_, visitor_)));
  ours_.close(this_thread(), peer_);  // what is in the rings is given up
}

TEST_P(Sockets, TheEndOfAStreamIsSeenAndAClosedSocketIsGone) {
  accept();
  ASSERT_EQ(theirs_.shutdown(this_thread(), visitor_, Shutdown::write), 0);
  EXPECT_TRUE(wait_for(server_, peer_, [](const SocketInfo& now) { return now.peer_ended; }).peer_ended);
  ASSERT_EQ(theirs_.close(this_thread(), visitor_), 0);
  ASSERT_EQ(ours_.close(this_thread(), peer_), 0);
  ASSERT_EQ(ours_.close(this_thread(), listener_), 0);
  for (const Deadline until = patience(); !server_.sockets().empty() && !until.passed();) std::this_thread::yield();
  EXPECT_EQ(server_.sockets().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Links, Sockets, testing::Values(LinkKind::p2p, LinkKind::tcp),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

/// A port at which nobody listens: it was bound, and given back.
Endpoint refusing() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(descriptor);
  return Endpoint::parse("127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + ",link=tcp");
}

TEST(SocketsAlone, AFreshContextHasNone) {
  const Context context(small_context());
  EXPECT_TRUE(context.sockets().empty());
}

TEST(SocketsAlone, ARefusedConnectionLeavesNothing) {
  Context context(small_context());
  EXPECT_EQ(context.net().connect(this_thread(), refusing(), patience()), -ECONNREFUSED);
  for (const Deadline until = patience(); !context.sockets().empty() && !until.passed();) std::this_thread::yield();
  EXPECT_TRUE(context.sockets().empty());
}

TEST(SocketsAlone, AHandshakeInProgressIsOpeningAndHasNoHandleYet) {
  Context context(small_context());
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 1, patience());
  Endpoint at;
  ASSERT_EQ(net.getsockname(listener, at), 0);
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(at.port);
  ASSERT_EQ(connect(silent, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const SocketInfo info = wait_for(context, -1, [](const SocketInfo& now) { return now.peer.family != 0; });
  EXPECT_EQ(info.state, SocketState::opening);
  EXPECT_EQ(info.peer.family, 4);
  EXPECT_EQ(info.link, LinkKind::automatic);
  close(silent);
}

/// A plain TCP client that is connected.
class Client {
 public:
  explicit Client(const Endpoint& to) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Client(Client&& from) noexcept : descriptor_(std::exchange(from.descriptor_, -1)) {}
  ~Client() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void say(char byte) const { EXPECT_EQ(::send(descriptor_, &byte, 1, MSG_NOSIGNAL), 1); }

 private:
  int descriptor_;
};

class Accepting : public testing::Test {
 protected:
  static constexpr std::uint32_t kSockets = 8;
  static Options options() {
    Options options;
    options.sockets_max = kSockets;
    return options;
  }
  Socket listen(int backlog) {
    const Socket listener = net_.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), backlog, patience());
    EXPECT_EQ(net_.getsockname(listener, at_), 0) << listener;
    return listener;
  }

  Context context_{options()};
  Net net_ = context_.net();
  Endpoint at_;  // of the last listener
};

TEST_F(Accepting, ConnectionsThatWaitForASocketAreAcceptedInTheOrderInWhichTheyCame) {
  constexpr int kClients = 3 * kSockets;
  const Socket listener = listen(kClients);
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(at_).say(static_cast<char>(i));
  wait_for(context_, listener, [](const SocketInfo& now) { return now.pending == kClients; });
  for (int i = 0; i < kClients; ++i) {
    const Socket socket = net_.accept(this_thread(), listener, patience());
    char byte = -1;
    ASSERT_EQ(net_.recv(this_thread(), socket, &byte, 1, 0, patience()), 1);
    ASSERT_EQ(byte, i);
    ASSERT_EQ(net_.close(this_thread(), socket), 0);
  }
}

// The proxy hands connections over while the listener closes.
TEST_F(Accepting, ClosingABusyListenerGivesAllSocketsBack) {
  for (int round = 0; round < 10; ++round) {
    const Socket busy = listen(2 * kSockets);
    std::vector<Client> clients;
    for (std::uint32_t i = 0; i < 2 * kSockets; ++i) clients.emplace_back(at_);
    const Socket other = listen(kSockets);
    ASSERT_EQ(net_.close(this_thread(), busy), 0);
    clients.clear();
    std::vector<Socket> accepted;
    for (std::uint32_t i = 0; i < kSockets; ++i) {
      clients.emplace_back(at_);
      accepted.push_back(net_.accept(this_thread(), other, patience()));
      ASSERT_GE(accepted.back(), 0) << "round " << round << ", connection " << i;
    }
    for (const Socket socket : accepted) EXPECT_EQ(net_.close(this_thread(), socket), 0);
    EXPECT_EQ(net_.close(this_thread(), other), 0);
  }
}

}  // namespace
}  // namespace gpusock
