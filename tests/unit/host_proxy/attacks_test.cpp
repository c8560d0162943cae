// One attack after the other: on the handshake, by a program in between; on a listener, by unauthenticated clients; on
// what is kept secret. docs/security.md lists them, with those that other tests play.
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/negotiation/handshake.hpp"
#include "tests/fuzz/node.hpp"
#include "tests/fuzz/wire.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

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
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock::proxy::attacks {
namespace {

using fuzz::Wire;
using fuzz::WireStream;
using State = Handshake::State;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A kind of link that agrees at once, and counts what it gave away and what it was told.
class CountingMaker final : public LinkMaker {
 public:
  explicit CountingMaker(LinkKind kind) : kind_(kind) {}
  LinkKind kind() const override { return kind_; }
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer, ReadySink&) override {
    if (!request.acceptor) heard.push_back(text_of(offer));
    return make();
  }
  int made = 0;
  std::vector<std::string> heard;
  static constexpr std::string_view kSaid = "what a link has to say..";

 private:
  class Setup final : public LinkSetup {
   public:
    explicit Setup(CountingMaker& maker) : maker_(maker) {}
    std::span<const std::byte> message() const override { return std::as_bytes(std::span(kSaid)); }
    bool take_answer(std::span<const std::byte> answer) override {
      maker_.heard.push_back(text_of(answer));
      return true;
    }
    std::unique_ptr<Link> make_link(const table::RingPair&, std::unique_ptr<ByteStream>&&, LinkEvents&) override {
      return nullptr;
    }

   private:
    CountingMaker& maker_;
  };
  std::unique_ptr<LinkSetup> make() {
    ++made;
    return std::make_unique<Setup>(*this);
  }
  LinkKind kind_;
};

struct Nobody final : ReadySink {
  void on_ready() override {}
};

/// One peer with its handshake.
struct Peer {
  explicit Peer(bool accepts, const std::string& secret = "swordfish", SocketType type = SocketType::stream,
                std::uint32_t record_ring_bytes = 8192) {
    resources.makers = {&better, &plain};
    resources.secret = secret;
    resources.record_ring_bytes = record_ring_bytes;
    Endpoint asked;
    asked.type = type;
    handshake = accepts ? make_acceptor_handshake(stream, resources, asked, nobody)
                        : make_connector_handshake(stream, resources, asked, nobody);
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

void shake(
    Peer& connector, Peer& acceptor, const Tamper& tamper = [](bool, std::string&) {}) {
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
    if (from_connector && std::exchange(first, false))
      bytes[offsetof(Hello, links)] = 1 << static_cast<int>(LinkKind::tcp);
  });
  EXPECT_EQ(connector.state, State::failed);
  EXPECT_EQ(connector.handshake->error(), EACCES);
  EXPECT_NE(acceptor.state, State::done);
}

TEST(HandshakeAttack, DowngradedReply) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [first = true](bool from_connector, std::string& bytes) mutable {
    if (!from_connector && std::exchange(first, false))
      bytes[offsetof(Reply, links)] = 1 << static_cast<int>(LinkKind::tcp);
  });
  EXPECT_EQ(connector.state, State::failed);
  EXPECT_NE(acceptor.state, State::done);
}

TEST(HandshakeAttack, DowngradedByARefusalThatNobodyGave) {
  Peer connector(false), acceptor(true);
  shake(connector, acceptor, [messages = 0](bool from_connector, std::string& bytes) mutable {
    const bool answers = from_connector && !bytes.empty() && ++messages == 3;  // behind Hello and Confirm
    if (answers) bytes[offsetof(NegotiationMessage, kind)] = NegotiationMessage::kRefusal;
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

/// How a side is left: done, still waiting (for what a test ends), or failed for this reason.
constexpr int kDone = 0, kWaits = -1;
int outcome(const Peer& peer) {
  return peer.state == State::done ? kDone : peer.state == State::waiting ? kWaits : peer.handshake->error();
}

/// The messages of a handshake that comes to a link, in turn; the connector's are the even ones.
enum Said { kHello, kReply, kConfirm, kOffered, kAnswered, kReadied, kMessages };
constexpr const char* kNames[] = {"Hello", "Reply", "Confirm", "offer", "answer", "ready"};

/// What must come of one bit of one message being another: for the side that is told it, and for the other one.
struct Outcomes {
  int told, other;
};
Outcomes expected_of(int message, std::size_t byte) {
  const int other = message == kReadied ? kDone : kWaits;  // it has nothing more to be told
  if (byte < sizeof kMagic) return {EPROTO, other};
  const auto is_in = [byte](std::size_t offset) { return byte == offset || byte == offset + 1; };
  switch (message) {
    case kHello:
      if (is_in(offsetof(Hello, type))) return {EPROTOTYPE, EPROTOTYPE};
      return {EACCES, EACCES};  // the acceptor cannot know; the connector finds it out, and tells
    case kReply:
      if (is_in(offsetof(Reply, error)))
        return {EPROTO, kWaits};  // whoever can say that it was refused can as well cut the connection
      return {EACCES, EACCES};
    case kConfirm:
      if (is_in(offsetof(Confirm, error))) return {EPROTO, kWaits};
      return {EACCES, EACCES};
    default:
      return {EACCES, other};
  }
}

/// Every bit of every message: who changes it is found out by the side that it was told to, which says exactly why;
/// what it stood for is not acted upon: nobody has a connection, and no link hears of what is not proven.
TEST(HandshakeAttack, AnyBitChanged) {
  std::size_t bits = 0;
  for (int message = 0; message < kMessages; ++message) {
    std::size_t bytes = 1;
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit, ++bits) {
      Peer connector(false), acceptor(true);
      int count[2] = {kReply, kHello};  // the next message of the acceptor, of the connector
      shake(connector, acceptor, [&](bool from_connector, std::string& said) {
        if (said.empty()) return;
        int& next = count[from_connector];
        if (next == message) {
          bytes = said.size();
          said[bit / 8] = static_cast<char>(said[bit / 8] ^ 1 << bit % 8);
        }
        next += 2;
      });
      const std::string where = std::string("bit ") + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8) +
                                " of " + kNames[message];
      const bool acceptor_told = message % 2 == 0;
      Peer &told = acceptor_told ? acceptor : connector, &other = acceptor_told ? connector : acceptor;
      Outcomes expected = expected_of(message, bit / 8);
      if (message >= kOffered && bit / 8 / 2 == offsetof(NegotiationMessage, bytes) / 2) {
        const std::size_t honest = message == kReadied ? 0 : CountingMaker::kSaid.size();
        const std::size_t claimed = honest ^ (std::size_t{1} << (bit - 8 * offsetof(NegotiationMessage, bytes)));
        if (claimed > kLinkMessageBytesMax) expected.told = EPROTO;
        if (expected.told == EACCES && claimed > honest) {
          EXPECT_EQ(outcome(told), kWaits) << where;
          told.hear(std::string(kLinkMessageBytesMax, '\0'));  // the bytes that were claimed
        }
      }
      ASSERT_EQ(outcome(told), expected.told) << where;
      ASSERT_EQ(outcome(other), expected.other) << where;
      if (message < kOffered) {
        ASSERT_EQ(acceptor.better.made, 0) << where << ": memory was given away";
      }
      for (const Peer* peer : {&connector, &acceptor}) {
        ASSERT_EQ(peer->plain.made, 0) << where << ": another link was gone on with";
        for (const std::string& heard : peer->better.heard) ASSERT_EQ(heard, CountingMaker::kSaid) << where;
      }
      ASSERT_EQ(told.better.heard.size(), message == kReadied ? 1u : 0u) << where;
    }
  }
  EXPECT_EQ(bits, 8 * (sizeof(Hello) + sizeof(Reply) + sizeof(Confirm) +
                       3 * (sizeof(NegotiationMessage) + sizeof(Proof)) + 2 * CountingMaker::kSaid.size()));
}

/// What a side alone would refuse, changed so that it does not: the proofs are all that is left to tell.
TEST(HandshakeAttack, AChangeThatSuitsWhoIsToldIsNoticed) {
  struct Change {
    const char* what;
    SocketType connector, acceptor;
    std::uint32_t connectors_rings;
    std::string acceptors_secret;
    int message;
    void (*apply)(std::string& bytes);
    Outcomes expected;  ///< of the connector, and the acceptor
  };
  const auto put = [](std::string& bytes, std::size_t offset, auto value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  };
  static const auto to16 = [put](std::string& bytes, std::size_t offset, std::uint16_t value) {
    put(bytes, offset, value);
  };
  static const auto to32 = [put](std::string& bytes, std::size_t offset, std::uint32_t value) {
    put(bytes, offset, value);
  };
  constexpr auto kStream = SocketType::stream, kRecords = SocketType::seqpacket;
  const Change changes[] = {
      {"a stream's hello as one of records",
       kStream,
       kRecords,
       8192,
       "swordfish",
       kHello,
       [](std::string& bytes) {
         to16(bytes, offsetof(Hello, type), 1);
         to32(bytes, offsetof(Hello, record_ring_bytes), 8192);
       },
       {EACCES, EACCES}},
      {"a hello of records as a stream's",
       kRecords,
       kStream,
       8192,
       "swordfish",
       kHello,
       [](std::string& bytes) { to16(bytes, offsetof(Hello, type), 0); },
       {EACCES, EACCES}},
      {"smaller rings that the acceptor would make",
       kRecords,
       kRecords,
       8192,
       "swordfish",
       kHello,
       [](std::string& bytes) { to32(bytes, offsetof(Hello, record_ring_bytes), 4096); },
       {EACCES, EACCES}},
      {"smaller rings that the connector would make",
       kRecords,
       kRecords,
       8192,
       "swordfish",
       kReply,
       [](std::string& bytes) { to32(bytes, offsetof(Reply, record_ring_bytes), 4096); },
       {EACCES, EACCES}},
      {"a refusal that is taken away",
       kStream,
       kRecords,
       8192,
       "swordfish",
       kReply,
       [](std::string& bytes) {
         to16(bytes, offsetof(Reply, error), 0);
         to16(bytes, offsetof(Reply, links), link_bit(LinkKind::verbs));
       },
       {EACCES, EPROTOTYPE}},
      {"a connector's refusal that is taken away",
       kStream,
       kStream,
       8192,
       "another",
       kConfirm,
       [](std::string& bytes) { to16(bytes, offsetof(Confirm, error), 0); },
       {EACCES, EACCES}},
  };
  for (const Change& change : changes) {
    Peer connector(false, "swordfish", change.connector, change.connectors_rings),
        acceptor(true, change.acceptors_secret, change.acceptor);
    int count[2] = {kReply, kHello};
    shake(connector, acceptor, [&](bool from_connector, std::string& said) {
      if (said.empty()) return;
      int& next = count[from_connector];
      if (next == change.message) change.apply(said);
      next += 2;
    });
    EXPECT_EQ(outcome(connector), change.expected.told) << change.what;
    EXPECT_EQ(outcome(acceptor), change.expected.other) << change.what;
    EXPECT_EQ(connector.better.made + acceptor.better.made, 0) << change.what;
  }
}

/// The proofs as handshake_messages.hpp has them, computed here: of the secret, over who speaks and every byte that
/// either side has said before it, proofs aside. A byte that both sides forgot would not be missed by either of them.
TEST(HandshakeAttack, ProofsAreOverAllThatWasSaid) {
  Peer connector(false), acceptor(true);
  std::string said_so_far;
  int messages = 0;
  shake(connector, acceptor, [&](bool from_connector, std::string& said) {
    if (said.empty()) return;
    const std::size_t proof_bytes = messages++ == kHello ? 0 : sizeof(Proof);
    ASSERT_GT(said.size(), proof_bytes);
    said_so_far += said.substr(0, said.size() - proof_bytes);
    if (proof_bytes == 0) return;
    const std::string text = (from_connector ? "gpusock connector" : "gpusock acceptor") + said_so_far;
    unsigned char proof[sizeof(Proof)];
    unsigned bytes = 0;
    ASSERT_NE(HMAC(EVP_sha256(), "swordfish", 9, reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                   proof, &bytes),
              nullptr);
    EXPECT_TRUE(said.substr(said.size() - proof_bytes) == std::string(reinterpret_cast<const char*>(proof), bytes))
        << kNames[messages - 1];
  });
  EXPECT_EQ(messages, kMessages);
  EXPECT_EQ(outcome(connector), kDone);
  EXPECT_EQ(outcome(acceptor), kDone);
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

/// An unauthenticated client's flood stays with the operating system: the proxy reads only the messages that are due.
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
  const LinkResources resources{{&tcp}, nullptr, 4096, "swordfish"};
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
  EXPECT_GE(waited_ms, 400) << "an unauthenticated client gets the time that an honest peer needs";
  EXPECT_TRUE(silent.front()->node_gone) << "who came first goes first";
  EXPECT_GE(node_.net.accept(this_thread(), listener_, Deadline::now()), 0);
}

TEST_F(Strangers, StayWhileThereIsRoomForOthers) {
  const auto silent = node_.network.arrive();
  pass_ms(4000);
  EXPECT_FALSE(silent->node_gone);
}

/// Where there is no memory for good.
class Destitute final : public LinkMaker {
 public:
  LinkKind kind() const override { return LinkKind::fabric; }
  std::unique_ptr<LinkSetup> start(const LinkRequest&, std::span<const std::byte>, ReadySink&) override {
    throw std::bad_alloc();
  }
  bool poll(std::uint64_t) override {
    ++polls;
    if (denied) throw std::bad_alloc();
    return false;
  }
  bool denied = true;
  int polls = 0;
};

TEST(Shortage, AProxySleepsBeforeItTriesAgain) {
  fuzz::Node node;
  Destitute maker;
  node.add(maker);
  node.start();
  constexpr auto kFull = Proxy::Pass::full;
  EXPECT_FALSE(node.proxy->step(node.now_ns, kFull)) << "nothing has moved, and the next step is not due";
  const std::uint64_t due_ns = node.proxy->next_deadline_ns();
  EXPECT_GE(due_ns, node.now_ns + 1'000'000);
  EXPECT_LE(due_ns, node.now_ns + 1'000'000'000);
  EXPECT_FALSE(node.proxy->step(due_ns, kFull));
  EXPECT_GT(node.proxy->next_deadline_ns(), due_ns);
  EXPECT_NE(node.proxy->next_deadline_ns(), kNever) << "it is tried again";
  maker.denied = false;
  node.proxy->step(node.proxy->next_deadline_ns(), kFull);
  EXPECT_EQ(node.proxy->next_deadline_ns(), kNever);
  EXPECT_EQ(maker.polls, 3);
}

struct Heard final : LinkEvents {
  void on_ended(std::uint64_t) override {}
  void on_peer_read_shut_down() override { ++read_shut_down; }
  void on_failed(int failure) override { error = failure; }
  int read_shut_down = 0, error = 0;
};

/// Each kind comes once; a step that went on reading what comes without end would serve nobody else.
TEST(ControlAttack, NoticesWithoutEndEndTheConnection) {
  const auto wire = std::make_shared<Wire>();
  Heard heard;
  ControlChannel channel(std::make_unique<WireStream>(wire), heard);
  const std::uint64_t read_shut_down[] = {2, 0};
  for (int i = 0; i < 1000; ++i)
    wire->to_node.append(reinterpret_cast<const char*>(read_shut_down), sizeof read_shut_down);
  channel.progress();
  EXPECT_EQ(heard.read_shut_down, 1);
  EXPECT_EQ(heard.error, EPROTO);
  EXPECT_EQ(wire->to_node.size(), 998 * sizeof read_shut_down) << "it read on";
}

/// A peer may ask any number of times whether the network still carries anything.
TEST(ControlAttack, ProbesWithoutEndDoNotKeepTheProxy) {
  const auto wire = std::make_shared<Wire>();
  Heard heard;
  ControlChannel channel(std::make_unique<WireStream>(wire), heard);
  const std::uint64_t probe[] = {4, 0}, read_shut_down[] = {2, 0};
  constexpr std::size_t kProbes = 1000;
  for (std::size_t i = 0; i < kProbes; ++i) wire->to_node.append(reinterpret_cast<const char*>(probe), sizeof probe);
  wire->to_node.append(reinterpret_cast<const char*>(read_shut_down), sizeof read_shut_down);
  EXPECT_TRUE(channel.progress());
  EXPECT_GT(wire->to_node.size(), kProbes / 2 * sizeof probe) << "others wait meanwhile";
  while (channel.progress()) continue;
  EXPECT_EQ(heard.read_shut_down, 1);
  EXPECT_EQ(heard.error, 0);
}

/// What a peer offers is fetched from a Unix socket whose name it says: that must be one of ours, whoever else listens
/// on this host.
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
  const auto honest = maker.start(request, {}, nobody);
  std::vector<std::byte> offer(honest->message().begin(), honest->message().end());
  std::memcpy(offer.data() + sizeof(std::uint64_t), name.data(), name.size());
  offer.back() ^= std::byte{1};  // a ticket of another process
  const auto answer = maker.start({}, offer, nobody);
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
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, access) != 3 || access[3] != 's' || access[0] != 'r')
      continue;
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
    EXPECT_EQ(visitor.net().send(this_thread(), socket, text.data(), text.size(), kWaitAll, patience()),
              std::int64_t(text.size()));
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
    EXPECT_EQ(net.recv(this_thread(), peer, words, said.size(), kWaitAll | kPeek, patience()),
              std::int64_t(said.size()));
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
