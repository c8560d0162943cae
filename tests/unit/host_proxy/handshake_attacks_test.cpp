// Attacks on the handshake, by a program between the peers, one after the other. docs/security.md lists them.
#include "host_proxy/negotiation/handshake.hpp"
#include "tests/fuzz/wire.hpp"

#include <gtest/gtest.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpusock::proxy::handshake_attacks {
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
TEST(UnauthenticatedLimit, Bytes) {
  Peer acceptor(true);
  const Hello hello{.links = 0xffff};
  std::string flood(reinterpret_cast<const char*>(&hello), sizeof hello);
  flood += std::string(kMagic.begin(), kMagic.end()) + std::string(1 << 20, 'x');
  acceptor.hear(flood);
  EXPECT_EQ(acceptor.state, State::failed);
  EXPECT_EQ(flood.size() - acceptor.wire->to_node.size(), sizeof(Hello) + sizeof(Confirm));
}

}  // namespace
}  // namespace gpusock::proxy::handshake_attacks
