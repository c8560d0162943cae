// A malicious peer on the p2p link: it writes what it likes into the shared memory, and onto the control channel.
#include "host_proxy/links/p2p/maker.hpp"
#include "tests/fuzz/session.hpp"

namespace gpusock::fuzz::of_peer_p2p {

FUZZ_TARGET(peer_p2p) {
  static auto* unix_sockets = new proxy::PosixNetwork;
  const std::uint8_t how = input.byte();
  Node node(how < 0x80 ? RingPlacement::host : RingPlacement::device), other;
  proxy::P2pMaker maker(*unix_sockets, node.segments), others_maker(*unix_sockets, other.segments);
  node.add(maker);
  other.add(others_maker);
  node.start();
  other.start();
  proxy::SegmentPool segments(node.platform, {Node::kRingBytes, Node::kRingBytes}, 0);
  proxy::TcpMaker tcp(segments);
  proxy::P2pMaker peers_maker(*unix_sockets, segments);
  proxy::LinkResources peer{{&peers_maker, &tcp}, nullptr, Node::kRingBytes, "swordfish"};
  Endpoint asked = WireStream::here();
  if ((how & 1) != 0) asked.type = SocketType::seqpacket;
  std::shared_ptr<Wire> wire;
  std::unique_ptr<proxy::LinkSetup> setup;
  const Socket socket = Session::establish(node, peer, asked, input.flag(), wire, setup);
  FUZZ_CHECK(socket >= 0 && node.setup_of(socket).link_needs_proxy == 0);
  asked.link = LinkKind::p2p;
  asked.type = SocketType::stream;
  Neighbour neighbour(node, other, asked);
  const table::RingPair shared = node.setup_of(socket).rings;
  const auto segment = setup->rings().link;
  const auto word = [](std::uint64_t* at) { return ringbuf::SystemAtomics::Ref<std::uint64_t>(*at); };
  run_session(node, socket, neighbour, input, [&](Input& says) {
    std::uint64_t* const words[] = {shared.rx.committed, shared.tx.consumed, shared.tx.committed, shared.rx.consumed};
    std::uint64_t* const chosen = words[says.below(2) + (says.byte() > 0xf0 ? 2 : 0)];
    switch (says.below(8)) {
      case 0:
        word(chosen).store(says.near(word(chosen).load(ringbuf::kRelaxed)), ringbuf::kRelease);
        break;
      case 1: {  // an honest step of a word, so that other lies are reached
        const auto committed = word(shared.rx.committed).load(ringbuf::kRelaxed),
                   consumed = word(shared.rx.consumed).load(ringbuf::kRelaxed);
        const std::uint64_t room = Node::kRingBytes - (committed - consumed);
        if (room <= Node::kRingBytes)
          word(shared.rx.committed)
              .store(committed + std::min<std::uint64_t>(room, says.below(256) * 8), ringbuf::kRelease);
        break;
      }
      case 2:
        word(shared.tx.consumed).store(word(shared.tx.committed).load(ringbuf::kRelaxed), ringbuf::kRelease);
        break;
      case 3: {  // a header where the next record would be, or anywhere
        const std::uint64_t bytes = says.near(8);
        const std::uint64_t header = says.near((bytes + 15) / 8 * 8) << 32 |
                                     static_cast<std::uint32_t>(says.byte() < 0xc0 ? bytes : 0xffffffff);
        const std::uint64_t at = (says.flag() ? word(shared.rx.consumed).load(ringbuf::kRelaxed) : says.below(4096)) /
                                 8 * 8 % Node::kRingBytes;
        std::memcpy(shared.rx.memory.data + at, &header, sizeof header);
        break;
      }
      case 4: {
        const std::uint64_t notice[] = {says.below(5), says.near(word(shared.rx.committed).load(ringbuf::kRelaxed))};
        if (!wire->ended) wire->to_node.append(reinterpret_cast<const char*>(notice), sizeof notice);
        break;
      }
      case 5:
        if (!wire->ended) wire->to_node += says.bytes(says.below(20));
        break;
      case 6:
        wire->ended = says.byte() % 4 == 0;
        break;
      default:
        wire->reset = says.byte() % 8 == 0;
        break;
    }
  });
}

}  // namespace gpusock::fuzz::of_peer_p2p
