// A listener and unauthenticated clients: whatever they send, they are disconnected, and honest peers are served.
#include "host_proxy/negotiation/handshake_messages.hpp"

#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>

namespace gpusock {
namespace {

using namespace proxy;

constexpr std::uint16_t kTcp = link_bit(LinkKind::tcp);

/// A TCP client that says what it likes.
class RawClient {
 public:
  explicit RawClient(const Endpoint& to) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    std::memcpy(&address.sin_addr, to.address, 4);
    timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { ::close(socket_); }

  template <class Message>
  void say(const Message& message) {
    say_bytes(std::string(reinterpret_cast<const char*>(&message), sizeof message));
  }
  void say_bytes(const std::string& bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }

  template <class Message>
  Message hear() {
    Message message{};
    EXPECT_EQ(::recv(socket_, &message, sizeof message, MSG_WAITALL), ssize_t(sizeof message));
    return message;
  }
  /// Was the connection ended by the other side: anything but a time-out.
  bool disconnected() {
    char byte = 0;
    ssize_t got = 0;
    while ((got = ::recv(socket_, &byte, 1, 0)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
};

class Handshaking : public testing::Test {
 protected:
  static Options options(const std::string& secret, std::uint64_t timeout_ns) {
    Options options;
    options.sockets_max = 16;
    options.ring_bytes = 16 << 10;
    options.secret = secret;
    options.handshake_timeout_ns = timeout_ns;
    return options;
  }

  void SetUp() override {
    listener_ = net_.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 128, patience());
    ASSERT_GE(listener_, 0);
    ASSERT_EQ(net_.getsockname(listener_, where_), 0);
  }

  /// An honest peer gets through and one byte goes each way.
  void expect_honest_peers_are_served() {
    Context honest(options("swordfish", kPatienceNs));
    std::thread visitor([&] {
      const Net net = honest.net();
      const Socket socket = net.connect(this_thread(), where_, patience());
      char byte = 'x';
      EXPECT_EQ(net.send(this_thread(), socket, &byte, 1, kWaitAll, patience()), 1) << socket;
      EXPECT_EQ(net.recv(this_thread(), socket, &byte, 1, kWaitAll, patience()), 1) << socket;
      EXPECT_EQ(byte, 'y');
      net.close(this_thread(), socket);
    });
    const Socket peer = net_.accept(this_thread(), listener_, patience());
    EXPECT_GE(peer, 0);
    char byte = 0;
    EXPECT_EQ(net_.recv(this_thread(), peer, &byte, 1, kWaitAll, patience()), 1);
    EXPECT_EQ(byte, 'x');
    byte = 'y';
    EXPECT_EQ(net_.send(this_thread(), peer, &byte, 1, kWaitAll, patience()), 1);
    visitor.join();
    net_.close(this_thread(), peer);
  }

  Context context_{options("swordfish", kPatienceNs)};
  Net net_ = context_.net();
  Socket listener_ = -1;
  Endpoint where_;
};

TEST_F(Handshaking, AnHttpClientIsSentAway) {
  RawClient client(where_);
  client.say_bytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.disconnected());
  expect_honest_peers_are_served();
}

TEST_F(Handshaking, RandomBytesAreSentAway) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(1 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    RawClient client(where_);
    client.say_bytes(bytes);
    EXPECT_TRUE(client.disconnected()) << "round " << i;
  }
  expect_honest_peers_are_served();
}

TEST_F(Handshaking, AStrangerWhoDoesNotKnowTheSecretIsTold) {
  RawClient client(where_);
  client.say(Hello{.links = kTcp});
  const auto reply = client.hear<Reply>();
  EXPECT_EQ(reply.error, 0);
  EXPECT_EQ(reply.links, kTcp);
  client.say(Confirm{});
  const auto turn = client.hear<NegotiationMessage>();
  EXPECT_EQ(turn.kind, NegotiationMessage::kNone);
  EXPECT_EQ(turn.error, EACCES);
  EXPECT_TRUE(client.disconnected());
  expect_honest_peers_are_served();
}

TEST_F(Handshaking, APeerWithoutACommonLinkIsTold) {
  RawClient client(where_);
  client.say(Hello{.links = 0x4000});
  EXPECT_EQ(client.hear<Reply>().error, EPROTONOSUPPORT);
  EXPECT_TRUE(client.disconnected());
}

TEST_F(Handshaking, AMessageInPiecesIsStillAMessage) {
  RawClient client(where_);
  const Hello hello{.links = kTcp};
  const std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  for (const char byte : bytes) client.say_bytes(std::string(1, byte));
  EXPECT_EQ(client.hear<Reply>().links, kTcp);
}

TEST_F(Handshaking, ThoseWhoLeaveInTheMiddleLeaveNothingBehind) {
  for (int i = 0; i < 100; ++i) {  // more than there are sockets
    RawClient client(where_);
    const Hello hello{.links = static_cast<std::uint16_t>(kTcp | link_bit(LinkKind::p2p))};
    const std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
    client.say_bytes(bytes.substr(0, static_cast<std::size_t>(i) % (bytes.size() + 1)));
  }
  expect_honest_peers_are_served();
}

TEST(HandshakeTimeout, ASilentPeerIsSentAwayInTime) {
  Options options;
  options.sockets_max = 16;
  options.handshake_timeout_ns = 20'000'000;
  Context context(options);
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 1, patience());
  Endpoint where;
  ASSERT_EQ(net.getsockname(listener, where), 0);
  RawClient first(where), second(where);  // the backlog is 1: the second waits for the first to go
  EXPECT_TRUE(first.disconnected());
  EXPECT_TRUE(second.disconnected());
}

}  // namespace
}  // namespace gpusock
