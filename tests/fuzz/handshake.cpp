// The handshake against a peer that says anything: unauthenticated clients, and peers that know the secret and lie
// (their proofs are right).
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/links/verbs/maker.hpp"
#include "host_proxy/negotiation/handshake.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/wire.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <bit>
#include <cstring>

namespace gpusock::fuzz::of_handshake {
namespace {

using namespace proxy;

struct NoSink final : ReadySink {
  void on_ready() override {}
};

/// What a context has, without a proxy. The verbs link has the NIC of fake_verbs.cpp.
struct Links {
  explicit Links(PosixNetwork& network)
      : segments(std::make_shared<HostPlatform>(), {4096, 4096}, 0),
        tcp(segments),
        p2p(network, segments),
        verbs(segments),
        resources{{&p2p, &verbs, &tcp}, nullptr, 8192, "swordfish"} {}
  SegmentPool segments;
  TcpMaker tcp;
  P2pMaker p2p;
  verbs::VerbsMaker verbs;
  LinkResources resources;
};

/// Says messages with the proofs that one who knows the secret would make.
class Forger {
 public:
  Forger(Wire& wire, const std::string& secret, bool node_accepts)
      : wire_(wire),
        secret_(secret),
        node_(node_accepts ? "gpusock acceptor" : "gpusock connector"),
        own_(node_accepts ? "gpusock connector" : "gpusock acceptor"),
        first_(!node_accepts) {}

  /// Takes what the node has said into account.
  void hear() {
    const std::string said = wire_.from_node.substr(heard_);
    heard_ = wire_.from_node.size();
    std::string rest = said;
    while (rest.size() >= 16) {
      std::size_t bytes = 16;  // a NegotiationMessage, or one of the first messages by their size
      if (first_ && rest.size() == sizeof(Hello)) {
        first_ = false;
        transcript_ += rest;
        return;
      }
      if (rest.size() == sizeof(Reply) && !reply_heard_) {
        reply_heard_ = true;
        bytes = sizeof(Reply) - sizeof(Proof);
      } else if (!reply_heard_ && rest.size() >= sizeof(Confirm) && node_[8] == 'c') {
        reply_heard_ = true;
        bytes = sizeof(Confirm) - sizeof(Proof);
      } else {
        NegotiationMessage header;
        std::memcpy(&header, rest.data(), sizeof header);
        bytes += header.bytes;
      }
      if (rest.size() < bytes + sizeof(Proof)) return;
      transcript_.append(rest, 0, bytes);
      rest.erase(0, bytes + sizeof(Proof));
    }
  }

  void say_unproven(const void* message, std::size_t bytes) {
    transcript_.append(static_cast<const char*>(message), bytes);
    wire_.to_node.append(static_cast<const char*>(message), bytes);
  }
  /// `bytes` without the proof, which is added.
  void say(const void* message, std::size_t bytes) {
    say_unproven(message, bytes);
    const std::string text = own_ + transcript_;
    Proof proof{};
    unsigned size = 0;
    HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &size);
    wire_.to_node.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  }

 private:
  Wire& wire_;
  std::string secret_, node_, own_;
  std::string transcript_;
  std::size_t heard_ = 0;
  bool first_;
  bool reply_heard_ = false;
};

/// A message as the fuzzer likes it: by default its members' bytes, with the magic put right.
template <class Message>
Message message_from(Input& input) {
  auto message = input.take<Message>();
  if (input.byte() < 0xf0) message.magic = kMagic;
  return message;
}

/// What an honest peer's link would say, with some bytes changed.
std::string near_honest(Input& input, Links& peer, LinkSetup*& setup, std::unique_ptr<LinkSetup>& kept, bool acceptor,
                        std::uint16_t link) {
  static NoSink sink;
  LinkRequest request;
  request.acceptor = acceptor;
  request.local = request.peer = WireStream::here();
  LinkMaker* maker = nullptr;
  for (LinkMaker* each : peer.resources.makers) {
    if (link_bit(each->kind()) == link) maker = each;
  }
  if (maker == nullptr) return {};
  if (kept == nullptr) kept = maker->start(request, {}, sink);
  setup = kept.get();
  if (setup->advance() != LinkSetup::State::ready) return {};
  const auto message = setup->message();
  std::string bytes(reinterpret_cast<const char*>(message.data()), message.size());
  for (std::size_t changes = input.below(8); changes != 0 && !bytes.empty(); --changes) {
    const std::size_t at = input.below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ input.byte());
  }
  if (input.byte() == 1) bytes.resize(input.below(kLinkMessageBytesMax + 1));
  return bytes;
}

void say_negotiation_message(Input& input, Forger& forger, Links& peer, std::unique_ptr<LinkSetup>& kept,
                             bool node_accepts) {
  NegotiationMessage header;
  header.kind = static_cast<std::uint16_t>(input.below(6));
  header.link = static_cast<std::uint16_t>(1u << input.below(6));
  header.error = input.byte();
  if (input.byte() == 0xff) header = message_from<NegotiationMessage>(input);
  std::string payload;
  LinkSetup* setup = nullptr;
  if (input.flag())
    payload = near_honest(input, peer, setup, kept, !node_accepts, header.link);
  else
    payload = std::string(input.bytes(input.below(kLinkMessageBytesMax + 1)));
  if (header.kind == NegotiationMessage::kReady || header.kind == NegotiationMessage::kNone) payload.clear();
  header.bytes = static_cast<std::uint16_t>(input.byte() == 0xff ? input.take<std::uint16_t>() : payload.size());
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message += payload;
  forger.say(message.data(), message.size());
}

}  // namespace

FUZZ_TARGET(handshake) {
  static auto* network = new PosixNetwork;
  fake::reset();
  {
    Links node(*network), peer(*network);
    const std::uint8_t mode = input.byte();
    const bool node_accepts = (mode & 1) != 0, forges = (mode & 2) != 0;
    Endpoint asked = WireStream::here();
    if ((mode & 4) != 0) asked.type = SocketType::seqpacket;
    asked.link = std::array{LinkKind::automatic, LinkKind::p2p, LinkKind::verbs, LinkKind::automatic}[mode >> 4 & 3];
    auto wire = std::make_shared<Wire>();
    WireStream stream(wire);
    NoSink sink;
    auto handshake = node_accepts ? make_acceptor_handshake(stream, node.resources, asked, sink)
                                  : make_connector_handshake(stream, node.resources, asked, sink);
    Forger forger(*wire, (mode & 8) != 0 ? "halibut" : "swordfish", node_accepts);
    std::unique_ptr<LinkSetup> kept;
    auto state = handshake->advance();
    for (int messages = 0; messages < 24 && !input.empty() && state == Handshake::State::waiting; ++messages) {
      forger.hear();
      if (!forges) {
        wire->to_node += input.bytes(1 + input.below(200));
      } else if (messages == 0 && node_accepts) {
        auto hello = message_from<Hello>(input);
        if (input.flag())
          hello = {.links = 0xffff, .type = asked.type == SocketType::seqpacket, .record_ring_bytes = 4096};
        forger.say_unproven(&hello, sizeof hello);
      } else if (messages == 0) {
        auto reply = message_from<Reply>(input);
        if (input.flag())
          reply = {.links = link_bit(static_cast<LinkKind>(1 + input.below(4))), .record_ring_bytes = 4096};
        forger.say(&reply, sizeof reply - sizeof(Proof));
      } else if (messages == 1 && node_accepts) {
        const auto confirm = input.flag() ? Confirm{} : message_from<Confirm>(input);
        forger.say(&confirm, sizeof confirm - sizeof(Proof));
      } else {
        say_negotiation_message(input, forger, peer, kept, node_accepts);
      }
      state = handshake->advance();
      node.verbs.poll(0);
      state = handshake->advance();
    }
    if (state == Handshake::State::waiting) {
      wire->ended = true;
      for (int turns = 0; turns < 8; ++turns) {
        node.verbs.poll(0);
        state = handshake->advance();
      }
    }
    if (state == Handshake::State::failed) FUZZ_CHECK(handshake->error() > 0 && handshake->error() < 200);
    if (state == Handshake::State::done) {
      FUZZ_CHECK(forges && (mode & 8) == 0);  // nobody gets in without the secret
      FUZZ_CHECK(asked.link == LinkKind::automatic || handshake->kind() == asked.link);
      const auto setup = handshake->take_setup();
      FUZZ_CHECK(setup != nullptr && setup->rings().callers != nullptr);
      const std::uint64_t ring = setup->rings().callers->ring_bytes();
      FUZZ_CHECK(std::has_single_bit(ring) && ring >= kRingBytesMin && ring <= kRingBytesMax);
    }
    FUZZ_CHECK(handshake->reasons().size() < 8 * 200);
  }
  FUZZ_CHECK(fake::nic().regions == 0 && fake::nic().pairs == 0);  // no key outlives its connection
}

}  // namespace gpusock::fuzz::of_handshake
