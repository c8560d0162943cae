// A malicious peer on the fabric link: completion data, credit, notices and a grant of its own making. The fabric is in
// memory.
#include "host_proxy/links/fabric/transport.hpp"
#include "host_proxy/links/fabric/peer_endpoint.hpp"
#include "host_proxy/links/one_sided_link.hpp"
#include "tests/fuzz/session.hpp"
#include "tests/unit/fabric/memory_fabric.hpp"

namespace gpusock::fuzz::of_peer_fabric {
namespace {

using namespace proxy::fabric;

/// The peer: an endpoint, and memory that the node may write.
struct Liar {
  explicit Liar(MemoryFabric& fabric)
      : port(fabric),
        memory(sizeof(Credit) + Node::kRingBytes),
        registered(port.register_memory(memory, FabricAccess::remote_target, error)) {
    grant.ring_bytes = Node::kRingBytes;
    grant.memory_key = registered->key();
    grant.address_bytes = sizeof(std::uint64_t);
    std::copy_n(port.address().begin(), sizeof(std::uint64_t), grant.address.begin());
  }
  MemoryPort port;
  std::vector<std::byte> memory;
  int error = 0;
  std::unique_ptr<FabricRegistration> registered;
  Grant grant;
};

/// The fabric link as production's maker has it (host_proxy/links/fabric/maker.cpp), on the fabric in memory and with
/// one endpoint.
class Maker : public proxy::LinkMaker {
 public:
  Maker(Node& node, MemoryFabric& fabric) : node_(node) {
    auto made = std::make_unique<MemoryPort>(fabric);
    port = made.get();
    peer_ = std::make_shared<PeerEndpoint>(std::move(made), Identity{}, "memory");
  }
  LinkKind kind() const override { return LinkKind::fabric; }
  std::unique_ptr<proxy::LinkSetup> start(const proxy::LinkRequest& request, std::span<const std::byte>,
                                          proxy::ReadySink&) override {
    return std::make_unique<Setup>(*this, request);
  }
  bool poll(std::uint64_t) override { return peer_->poll(); }

  MemoryPort* port = nullptr;
  Grant granted;  ///< the node's

 protected:
  /// What this node takes for the connector's grant.
  virtual Grant grant_of(std::span<const std::byte> answer) const {
    Grant grant;
    FUZZ_CHECK(answer.size() == sizeof grant);
    std::memcpy(&grant, answer.data(), sizeof grant);
    return grant;
  }

 private:
  class Setup final : public proxy::LinkSetup {
   public:
    Setup(Maker& maker, const proxy::LinkRequest& request) : maker_(maker), acceptor_(request.acceptor) {
      rings_ = maker.node_.segments.take_rings(Node::kRingBytes, request.kernels);
      transport_ = std::make_unique<FabricTransport>(maker.peer_, rings_.link, acceptor_);
      maker.granted = transport_->grant();
    }
    std::span<const std::byte> message() const override {
      return acceptor_ ? std::span<const std::byte>() : std::as_bytes(std::span(&maker_.granted, 1));  // the acceptor's
                                                                                                       // comes later
    }
    bool take_answer(std::span<const std::byte> answer) override {
      if (transport_->take_grant(maker_.grant_of(answer)) != 0) failure_ = {EPROTO, "no such grant"};
      return failure_.error == 0;
    }

    std::unique_ptr<proxy::Link> make_link(const table::RingPair& rings, std::unique_ptr<proxy::ByteStream>&& stream,
                                           proxy::LinkEvents& events) override {
      return std::make_unique<proxy::OneSidedLink>(std::move(transport_), std::move(stream), rings, events);
    }

   private:
    Maker& maker_;
    bool acceptor_;
    std::unique_ptr<FabricTransport> transport_;
  };

  Node& node_;
  std::shared_ptr<PeerEndpoint> peer_;
};

/// The one for the peer that lies: agrees on nothing, and its grant is what the input says.
class LiarsMaker final : public Maker {
 public:
  LiarsMaker(Node& node, MemoryFabric& fabric, const Liar& liar) : Maker(node, fabric), liar_(liar) {}

 private:
  Grant grant_of(std::span<const std::byte>) const override { return liar_.grant; }
  const Liar& liar_;
};

/// What the node has: an endpoint for each peer. The first connection is the liar's, all others are honest peers'.
class Endpoints final : public proxy::LinkMaker {
 public:
  Endpoints(Maker& liars, Maker& honest) : liars_(liars), honest_(honest) {}
  LinkKind kind() const override { return LinkKind::fabric; }
  std::unique_ptr<proxy::LinkSetup> start(const proxy::LinkRequest& request, std::span<const std::byte> offer,
                                          proxy::ReadySink& sink) override {
    return next().start(request, offer, sink);
  }
  bool poll(std::uint64_t now_ns) override {
    const bool any = liars_.poll(now_ns);
    return honest_.poll(now_ns) || any;
  }

 private:
  Maker& next() { return std::exchange(first_, false) ? liars_ : honest_; }
  Maker& liars_;
  Maker& honest_;
  bool first_ = true;
};

/// The peer's half of the handshake: takes whatever is said.
class Agreeable final : public proxy::LinkMaker {
  class Setup final : public proxy::LinkSetup {
    bool take_answer(std::span<const std::byte>) override { return true; }
    std::unique_ptr<proxy::Link> make_link(const table::RingPair&, std::unique_ptr<proxy::ByteStream>&&,
                                           proxy::LinkEvents&) override {
      return nullptr;
    }
  };
  LinkKind kind() const override { return LinkKind::fabric; }
  std::unique_ptr<proxy::LinkSetup> start(const proxy::LinkRequest&, std::span<const std::byte>,
                                          proxy::ReadySink&) override {
    return std::make_unique<Setup>();
  }
};

void say(Wire& wire, std::uint64_t kind, std::uint64_t value) {
  const std::uint64_t notice[] = {kind, value};
  if (!wire.ended) wire.to_node.append(reinterpret_cast<const char*>(notice), sizeof notice);
}

constexpr std::uint64_t kGrantWord = 16;  // notices of the fabric link: see one_sided_link.hpp

/// The grant, with one of its fields changed, or none.
Grant near_grant(Input& input, Grant grant) {
  switch (input.below(16)) {
    case 0:
      grant.index = input.take<std::uint16_t>();
      break;
    case 1:
      grant.ring_bytes = input.near(Node::kRingBytes);
      break;
    case 2:
      grant.ring_bytes = std::uint64_t{1} << input.below(64);
      break;
    case 3:
      grant.memory_address = input.near(0);
      break;
    case 4:
      grant.memory_key = input.near(grant.memory_key);
      break;
    case 5:
      grant.address_bytes = input.take<std::uint16_t>();
      break;
    case 6:
      grant.address[input.below(8)] = std::byte{input.byte()};
      break;
    default:
      break;
  }
  return grant;
}

}  // namespace

FUZZ_TARGET(peer_fabric) {
  MemoryFabric fabric(input.byte());
  {
    const std::uint8_t how = input.byte();
    Node node(how < 0x80 ? RingPlacement::host : RingPlacement::device), other;
    Liar liar(fabric);
    const bool accepts = (how & 1) != 0, records = input.flag();
    liar.grant = near_grant(input, liar.grant);
    LiarsMaker maker(node, fabric, liar);
    Maker honest(node, fabric), others_maker(other, fabric);
    Endpoints endpoints(maker, honest);
    node.add(endpoints);
    other.add(others_maker);
    node.start();
    other.start();
    Agreeable agreeable;
    proxy::LinkResources peer{{&agreeable}, nullptr, Node::kRingBytes, "swordfish"};
    Endpoint asked = WireStream::here();
    asked.link = LinkKind::fabric;
    if (records) asked.type = SocketType::seqpacket;
    std::shared_ptr<Wire> wire;
    std::unique_ptr<proxy::LinkSetup> setup;
    const Socket socket = Session::establish(node, peer, asked, accepts, wire, setup);
    if (socket < 0) return;  // the grant was refused
    if (!accepts) {          // the grant comes on the control channel
      std::uint64_t words[sizeof(Grant) / 8];
      std::memcpy(words, &liar.grant, sizeof words);
      for (const std::uint64_t each : words) say(*wire, kGrantWord, each);
    }
    asked.type = SocketType::stream;
    Neighbour neighbour(node, other, asked, [&] {
      for (int writes = 0; writes < 8; ++writes) fabric.step();
    });
    // Keys are random where it matters; here they are counted, and a peer that guessed a neighbour's would only show
    // that.
    const bool guessed = liar.grant.memory_key != liar.registered->key() &&
                         liar.grant.memory_key != maker.granted.memory_key;
    if (guessed && fabric.regions.contains(liar.grant.memory_key)) return;
    const std::span<std::byte> target = fabric.regions.at(maker.granted.memory_key).memory;
    std::uint64_t fragments = 0, bytes_sent = 0;
    run_session(node, socket, neighbour, input, [&](Input& says) {
      const bool there = fabric.regions.contains(maker.granted.memory_key);
      switch (says.below(10)) {
        case 0:
          for (std::size_t writes = says.below(8); writes > 0; --writes) fabric.step();
          break;
        case 1: {  // an honest fragment
          const std::uint64_t at = bytes_sent % Node::kRingBytes,
                              bytes = 1 + std::min<std::uint64_t>(says.below(2000), Node::kRingBytes - at - 1);
          if (there) std::memset(target.data() + sizeof(Credit) + at, says.byte(), bytes);
          maker.port->tell_arrived(CompletionData{
              maker.granted.index, static_cast<std::uint32_t>(fragments++ % kWindow), static_cast<std::uint32_t>(bytes)}
                                       .pack());
          bytes_sent += bytes;
          break;
        }
        case 2:
          maker.port->tell_arrived(CompletionData{static_cast<std::uint32_t>(says.near(maker.granted.index)) & 0xfff,
                                                  static_cast<std::uint32_t>(says.near(fragments)) % kWindow,
                                                  static_cast<std::uint32_t>(says.near(Node::kRingBytes)) & 0xffff}
                                       .pack());
          break;
        case 3:
        case 4: {
          const Credit credit{says.near(says.below(8) * 512), says.below(40)};
          if (there) std::memcpy(target.data(), &credit, sizeof credit);
          maker.port->tell_arrived(CompletionData{maker.granted.index, 0, 0}.pack());
          break;
        }
        case 5:
          say(*wire, says.below(4), says.near(bytes_sent));
          break;
        case 6:
          say(*wire, kGrantWord + says.below(5), says.near(fragments));
          break;
        case 7:
          maker.port->completions.push_back(
              {says.flag() ? Completion::Kind::written : Completion::Kind::failed,
               says.byte() == 0 ? Completion::kNoToken : says.near(std::uint64_t{maker.granted.index} << 8), 0, EIO,
               "no"});
          break;
        case 8:
          wire->ended = says.byte() % 4 == 0;
          break;
        default:
          wire->reset = says.byte() % 8 == 0;
          break;
      }
    });
  }
  FUZZ_CHECK(fabric.regions.empty() && fabric.ports.empty());  // nothing stays registered
}

}  // namespace gpusock::fuzz::of_peer_fabric
