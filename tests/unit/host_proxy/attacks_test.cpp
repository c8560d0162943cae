// One attack after the other: on the handshake, by somebody in between; on a listener, by strangers; on what is kept secret.
// docs/security.md lists them, with those that other tests play.
#include "host_proxy/control_channel.hpp"
#include "host_proxy/handshake.hpp"
#include "host_proxy/p2p_setup.hpp"
#include "host_proxy/segment.hpp"
#include "host_proxy/tcp_setup.hpp"
#include "tests/fuzz/node.hpp"
#include "tests/fuzz/wire.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock::proxy::attacks {
namespace {

using fuzz::Wire;
using fuzz::WireStream;
using State = Handshake::State;

/// A kind of link that agrees at once and counts what it gave away.
class CountingMaker final : public LinkMaker {
 public:
  explicit CountingMaker(LinkKind kind) : kind_(kind) {}
  LinkKind kind() const override { return kind_; }
  std::unique_ptr<LinkSetup> offer(const LinkRequest&, ReadySink&) override { return make(); }
  std::unique_ptr<LinkSetup> answer(const LinkRequest&, std::span<const std::byte>, ReadySink&) override { return make(); }
  int made = 0;

 private:
  class Setup final : public LinkSetup {
    const std::shared_ptr<Segment>& memory() const override { return none_; }
    std::unique_ptr<Link> establish(Slots&, std::uint32_t, std::unique_ptr<ByteStream>, LinkEvents&) override { return nullptr; }
    std::shared_ptr<Segment> none_;
  };
  std::unique_ptr<LinkSetup> make() {
    ++made;
    return std::make_unique<Setup>();
  }
  LinkKind kind_;
};

struct Nobody final : ReadySink {
  void on_ready() override {}
};

/// One peer with its handshake.
struct Peer {
  explicit Peer(bool accepts, const std::string& secret = "swordfish") {
    resources.makers = {&better, &plain};
    resources.secret = secret;
    handshake = accepts ? make_acceptor_handshake(stream, resources, {}, nobody) : make_connector_handshake(stream, resources, {}, nobody);
    state = handshake->advance();
  }
  void hear(const std::string& bytes) {
    wire->to_node += bytes;
    stream.readable = true;
    for (int turns = 0; turns < 3 && state == State::waiting; ++turns) state = handshake->advance();
  }
  std::string said() { return std::exchange(wire->from_node, {}); }

  CountingMaker better{LinkKind::verbs}, plain{LinkKind::tcp};
  LinkResources resources;
  Nobody nobody;
  std::shared_ptr<Wire> wire = std::make_shared<Wire>();
  WireStream stream{wire};
  std::unique_ptr<Handshake> handshake;
  State state;
};

/// Somebody in between: gets what a side says, may change it, and passes it on.
using Tamper = std::function<void(bool from_connector, std::string& bytes)>;

void shake(Peer& connector, Peer& acceptor, const Tamper& tamper = [](bool, std::string&) {}) {
  for (int i = 0; i < 8; ++i) {
    std::string there = connector.said();
    tamper(true, there);
    acceptor.hear(there);
    std::string back = acceptor.said();
    tamper(false, back);
    connector.hear(back);
  }
}

TEST(HandshakeAttack, NobodyInBetweenAndBothAgree) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor);
  EXPECT_EQ(connector.state, State::done);
  EXPECT_EQ(acceptor.state, State::done);
  EXPECT_EQ(connector.handshake->kind(), LinkKind::verbs);
}

TEST(HandshakeAttack, ReplayedConnector) {
  std::string recorded;
  {
    Peer connector(false), acceptor(true);
    shake(connector, acceptor, [&](bool from_connector, std::string& bytes) {
      if (from_connector) recorded += bytes;
    });
    ASSERT_EQ(acceptor.state, State::done);
  }
  Peer acceptor(true);
  acceptor.hear(recorded);
  EXPECT_EQ(acceptor.state, State::failed);
  EXPECT_EQ(acceptor.handshake->error(), EACCES);
  EXPECT_EQ(acceptor.better.made, 0) << "memory was given away";
}

TEST(HandshakeAttack, ReplayedAcceptor) {
  std::string recorded;
  {
    Peer connector(false), acceptor(true);
    shake(connector, acceptor, [&](bool from_connector, std::string& bytes) {
      if (!from_connector) recorded += bytes;
    });
    ASSERT_EQ(connector.state, State::done);
  }
  Peer connector(false);
  connector.hear(recorded);
  EXPECT_EQ(connector.state, State::failed);
  EXPECT_EQ(connector.handshake->error(), EACCES);
}

TEST(HandshakeAttack, ReflectedProof) {
  Peer acceptor(true);
  const Hello hello{.links = 0xffff};
  acceptor.hear({reinterpret_cast<const char*>(&hello), sizeof hello});
  Reply reply;
  const std::string said = acceptor.said();
  ASSERT_EQ(said.size(), sizeof reply);
  std::memcpy(&reply, said.data(), sizeof reply);
  const Confirm confirm{.proof = reply.proof};  // its own
  acceptor.hear({reinterpret_cast<const char*>(&confirm), sizeof confirm});
  EXPECT_EQ(acceptor.state, State::failed);
  EXPECT_EQ(acceptor.handshake->error(), EACCES);
}

TEST(HandshakeAttack, ReflectedMessages) {
  Peer connector(false);
  for (int i = 0; i < 8; ++i) connector.hear(connector.said());  // a service that echoes
  EXPECT_NE(connector.state, State::done);
  EXPECT_EQ(connector.better.made + connector.plain.made, 0);
}

TEST(HandshakeAttack, DowngradedHello) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [first = true](bool from_connector, std::string& bytes) mutable {
    if (from_connector && std::exchange(first, false)) bytes[offsetof(Hello, links)] = 1 << static_cast<int>(LinkKind::tcp);
  });
  EXPECT_EQ(connector.state, State::failed);
  EXPECT_EQ(connector.handshake->error(), EACCES);
  EXPECT_NE(acceptor.state, State::done);
}

TEST(HandshakeAttack, DowngradedReply) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [first = true](bool from_connector, std::string& bytes) mutable {
    if (!from_connector && std::exchange(first, false)) bytes[offsetof(Reply, links)] = 1 << static_cast<int>(LinkKind::tcp);
  });
  EXPECT_EQ(connector.state, State::failed);
  EXPECT_NE(acceptor.state, State::done);
}

TEST(HandshakeAttack, DowngradedByARefusalThatNobodyGave) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [messages = 0](bool from_connector, std::string& bytes) mutable {
    const bool answers = from_connector && !bytes.empty() && ++messages == 3;  // behind Hello and Confirm
    if (answers) bytes[offsetof(Turn, kind)] = Turn::kRefusal;
  });
  EXPECT_EQ(acceptor.state, State::failed);
  EXPECT_EQ(acceptor.plain.made, 0) << "the next link was offered";
}

/// Cut anywhere, on either way, the side that did not get it all has no connection.
TEST(HandshakeAttack, Truncated) {
  std::size_t all[2] = {};
  {
    Peer connector(false), acceptor(true);
    shake(connector, acceptor, [&](bool from_connector, std::string& bytes) { all[from_connector] += bytes.size(); });
  }
  for (const bool from_connector : {false, true}) {
    ASSERT_GT(all[from_connector], 100u);
    for (std::size_t left = 0; left < all[from_connector]; ++left) {
      Peer connector(false), acceptor(true);
      std::size_t passed = 0;
      shake(connector, acceptor, [&](bool from, std::string& bytes) {
        if (from != from_connector) return;
        bytes.resize(std::min(bytes.size(), left - passed));
        passed += bytes.size();
      });
      Peer& cut = from_connector ? acceptor : connector;
      EXPECT_NE(cut.state, State::done) << left;
      cut.wire->ended = true;
      cut.hear({});
      EXPECT_EQ(cut.state, State::failed) << left;
    }
  }
}

/// Any byte of any message: who changes it prevents the connection, and never makes it another one.
TEST(HandshakeAttack, AnyByteChanged) {
  for (const bool from_connector : {false, true}) {
    for (std::size_t target = 0;; ++target) {
      Peer connector(false), acceptor(true);
      std::size_t at = 0;
      bool changed = false;
      shake(connector, acceptor, [&](bool from, std::string& bytes) {
        if (from != from_connector) return;
        if (!changed && target < at + bytes.size()) {
          bytes[target - at] = static_cast<char>(bytes[target - at] ^ 0x20);
          changed = true;
        }
        at += bytes.size();
      });
      if (!changed) break;
      EXPECT_FALSE(connector.state == State::done && acceptor.state == State::done)
          << "byte " << target << " of the " << (from_connector ? "connector" : "acceptor");
    }
  }
}

TEST(HandshakeAttack, AWrongSecretGetsNoMemory) {
  for (const char* secret : {"", "swordfisH", "swordfish "}) {
    Peer connector(false, secret), acceptor(true);
    shake(connector, acceptor);
    EXPECT_EQ(connector.state, State::failed) << secret;
    EXPECT_EQ(connector.handshake->error(), EACCES) << secret;
    EXPECT_NE(acceptor.state, State::done) << secret;
    EXPECT_EQ(acceptor.better.made, 0) << secret;
  }
}

/// Proofs hold nothing of any clock: how long a message takes is for deadlines alone to judge.
TEST(HandshakeAttack, DelaysChangeNothing) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [&](bool, std::string&) {
    for (int i = 0; i < 1000; ++i) {
      connector.hear({});
      acceptor.hear({});
    }
  });
  EXPECT_EQ(connector.state, State::done);
  EXPECT_EQ(acceptor.state, State::done);
}

/// A stranger's flood stays with the operating system: no more is read than the messages that are due.
TEST(StrangerLimit, Bytes) {
  Peer acceptor(true);
  const Hello hello{.links = 0xffff};
  std::string flood(reinterpret_cast<const char*>(&hello), sizeof hello);
  flood += std::string(kMagic.begin(), kMagic.end()) + std::string(1 << 20, 'x');
  acceptor.hear(flood);
  EXPECT_EQ(acceptor.state, State::failed);
  EXPECT_EQ(flood.size() - acceptor.wire->to_node.size(), sizeof(Hello) + sizeof(Confirm));
}

/// Strangers at a node whose clock is ours.
class Strangers : public testing::Test {
 protected:
  Strangers() {
    node_.start();
    listener_ = node_.net.listen(this_thread(), WireStream::here(), kBacklog, Deadline::now());
    EXPECT_GE(listener_, 0);
  }
  std::size_t in_handshake() {
    std::size_t count = 0;
    for (const SocketInfo& info : node_.proxy->sockets(node_.now_ns)) count += info.handle < 0 ? 1 : 0;
    return count;
  }
  void pass_ms(int milliseconds) { node_.turn(milliseconds); }

  static constexpr int kBacklog = 2;
  fuzz::Node node_;
  Socket listener_ = -1;
};

TEST_F(Strangers, TheirNumberIsLimited) {
  std::vector<std::shared_ptr<Wire>> wires;
  for (int i = 0; i < 20; ++i) wires.push_back(node_.network.arrive());
  pass_ms(5);
  EXPECT_EQ(in_handshake(), std::size_t{kBacklog});
}

TEST_F(Strangers, WhoTricklesIsSentAwayAtTheDeadlineAllTheSame) {
  const auto wire = node_.network.arrive();
  const Hello hello{.links = 0xffff};
  const std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  std::size_t said = 0;
  for (int i = 0; i < 4900; ++i) {
    if (i % 100 == 0) wire->to_node += bytes[said++];
    node_.turn();
  }
  EXPECT_FALSE(wire->node_gone);
  pass_ms(200);
  EXPECT_TRUE(wire->node_gone);
}

TEST_F(Strangers, WhoAreSilentKeepNobodyOutForLong) {
  std::vector<std::shared_ptr<Wire>> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(node_.network.arrive());
  pass_ms(5);
  const auto honest = node_.network.arrive();
  SegmentPool segments(node_.platform, {4096, 4096}, 0);
  TcpMaker tcp(segments);
  const LinkResources resources{{&tcp}, &tcp, 4096, "swordfish"};
  Nobody nobody;
  WireStream stream(honest, true);
  const auto handshake = make_connector_handshake(stream, resources, WireStream::here(), nobody);
  auto state = State::waiting;
  int waited_ms = 0;
  for (; waited_ms < 4000 && state == State::waiting; ++waited_ms) {
    node_.turn();
    state = handshake->advance();
  }
  EXPECT_EQ(state, State::done) << "five seconds' silence of others is too long";
  EXPECT_GE(waited_ms, 400) << "a stranger gets the time that an honest peer needs";
  EXPECT_TRUE(silent.front()->node_gone) << "who came first goes first";
  EXPECT_GE(node_.net.accept(this_thread(), listener_, Deadline::now()), 0);
}

TEST_F(Strangers, StayWhileThereIsRoomForOthers) {
  const auto silent = node_.network.arrive();
  pass_ms(4000);
  EXPECT_FALSE(silent->node_gone);
}

struct Heard final : LinkEvents {
  void on_ended(std::uint64_t) override {}
  void on_peer_deaf() override { ++deaf; }
  void on_failed(int failure) override { error = failure; }
  int deaf = 0, error = 0;
};

/// Each kind comes once; a step that went on reading what comes without end would serve nobody else.
TEST(ControlAttack, NoticesWithoutEndEndTheConnection) {
  const auto wire = std::make_shared<Wire>();
  Heard heard;
  ControlChannel channel(std::make_unique<WireStream>(wire), heard);
  const std::uint64_t deaf[] = {2, 0};
  for (int i = 0; i < 1000; ++i) wire->to_node.append(reinterpret_cast<const char*>(deaf), sizeof deaf);
  channel.pump();
  EXPECT_EQ(heard.deaf, 1);
  EXPECT_EQ(heard.error, EPROTO);
  EXPECT_EQ(wire->to_node.size(), 998 * sizeof deaf) << "it read on";
}

/// What a peer offers is fetched from a Unix socket whose name it says: that must be one of ours, whoever else listens on this host.
TEST(P2pAttack, APeerDoesNotChooseWhomThisHostTalksTo) {
  const std::string name = "another-program-of-this-user----";  // as long as ours
  Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0) << strerror(errno);
  ASSERT_EQ(::listen(listener.get(), 4), 0);

  PosixNetwork network;
  SegmentPool segments(std::make_shared<HostPlatform>(), {4096, 4096}, 0);
  P2pMaker maker(network, segments);
  Nobody nobody;
  LinkRequest request;
  request.acceptor = true;
  const auto honest = maker.offer(request, nobody);
  std::vector<std::byte> offer(honest->message().begin(), honest->message().end());
  std::memcpy(offer.data() + sizeof(std::uint64_t), name.data(), name.size());
  offer.back() ^= std::byte{1};  // a ticket of another process
  const auto answer = maker.answer({}, offer, nobody);
  EXPECT_EQ(answer->advance(), LinkSetup::State::failed);
  EXPECT_EQ(answer->failure().error, EPROTO);
  EXPECT_LT(accept4(listener.get(), nullptr, nullptr, 0), 0) << "somebody came";
}

/// Endpoints that come from a peer (as at param_sync's rendezvous) may hold anything.
TEST_F(Strangers, EndpointsThatCannotBeAreRefused) {
  Endpoint bad_link = WireStream::here(), bad_family = WireStream::here(), bad_ring = WireStream::here();
  bad_link.link = static_cast<LinkKind>(200);
  bad_family.family = 5;
  bad_ring.ring_bytes = 4097;
  for (const Endpoint& bad : {bad_link, bad_family, bad_ring}) {
    EXPECT_EQ(node_.net.connect(this_thread(), bad, Deadline::now()), -EINVAL);
    EXPECT_EQ(node_.net.listen(this_thread(), bad, 1, Deadline::now()), -EINVAL);
  }
}

/// What this process shares with others, or may write somewhere: does it hold the text.
std::string where_shared(const std::string& text) {
  std::ifstream maps("/proc/self/maps");
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, last = 0;
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, access) != 3 || access[3] != 's' || access[0] != 'r') continue;
    std::string bytes(last - first, '\0');
    const auto got = pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(first));
    if (got > 0 && bytes.find(text) != std::string::npos) found += line + "\n";
  }
  close(memory);
  return found;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void connect_and_say(const Options& options, const Endpoint& to, const std::string& text, std::int64_t expected) {
  Context visitor(options);
  const Socket socket = visitor.net().connect(this_thread(), to, patience());
  EXPECT_EQ(socket < 0 ? socket : 0, expected);
  if (socket >= 0) {
    EXPECT_EQ(visitor.net().send(this_thread(), socket, text.data(), text.size(), kWaitAll, patience()), std::int64_t(text.size()));
  }
}

TEST(Secret, IsInNoLogAndInNothingThatIsShared) {
  const std::string secret = "ferrum-noctis-7f1", said = "spoken-aloud-91c";
  test::Folder folder;
  testing::internal::CaptureStderr();
  std::string shared, shared_words, pages;
  {
    Options options;
    options.sockets_max = 16;
    options.secret = secret;
    options.observe = folder.path();
    Context context(options);
    const Net net = context.net();
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 4, patience());
    Endpoint where;
    ASSERT_EQ(net.getsockname(listener, where), 0);
    std::thread visitors([&] {
      connect_and_say(options, where, said, 0);
      Options wrong = options;
      wrong.secret = secret + "x";
      connect_and_say(wrong, where, said, -EACCES);
    });
    const Socket peer = net.accept(this_thread(), listener, patience());
    char words[32] = "";
    EXPECT_EQ(net.recv(this_thread(), peer, words, said.size(), kWaitAll | kPeek, patience()), std::int64_t(said.size()));
    visitors.join();
    shared = where_shared(secret);
    shared_words = where_shared(said);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) pages += content(entry.path());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(shared, "");
  EXPECT_NE(shared_words, "") << "the search found nothing of what is in the rings: it proves nothing";
  EXPECT_NE(pages, "");
  EXPECT_EQ(pages.find(secret), std::string::npos);
  EXPECT_EQ(log.find(secret), std::string::npos) << log;
  if (const char* level = std::getenv("GPUSOCK_LOG"); level != nullptr && std::string(level) == "trace") {
    EXPECT_NE(log.find("handshake"), std::string::npos) << "nothing was logged: it proves nothing";
  }
  EXPECT_EQ(content("/proc/self/cmdline").find(secret), std::string::npos);
}

}  // namespace
}  // namespace gpusock::proxy::attacks
