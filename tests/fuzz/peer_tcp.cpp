// A malicious peer on the tcp link: plain, and with records as agreed in a handshake.
#include "tests/fuzz/session.hpp"

namespace gpusock::fuzz::of_peer_tcp {

FUZZ_TARGET(peer_tcp) {
  const std::uint8_t how = input.byte();
  const bool records = (how & 1) != 0, accepts = input.flag();
  Node node(how < 0x80 ? RingPlacement::host : RingPlacement::device), other;
  node.start();
  other.start();
  std::shared_ptr<Wire> wire;
  Socket socket = -1;
  std::unique_ptr<proxy::LinkSetup> setup;
  proxy::SegmentPool segments(node.platform, {Node::kRingBytes, Node::kRingBytes}, 0);
  proxy::TcpMaker tcp(segments);
  proxy::LinkResources peer{{&tcp}, nullptr, Node::kRingBytes, "swordfish"};
  Endpoint asked = WireStream::here();
  if (records) {
    asked.type = SocketType::seqpacket;
    socket = Session::establish(node, peer, asked, accepts, wire, setup);
  } else {
    asked.link = LinkKind::tcp;
    socket = node.net.connect(this_thread(), asked, Deadline::now());
    wire = node.network.last();
  }
  FUZZ_CHECK(socket >= 0);
  asked.link = LinkKind::tcp;
  asked.type = SocketType::stream;
  Neighbour neighbour(node, other, asked);
  run_session(node, socket, neighbour, input, [&](Input& says) {
    switch (says.below(8)) {
      case 0:
        wire->ended = true;
        break;
      case 1:
        wire->reset = says.byte() % 8 == 0;
        break;
      case 2:
        wire->room = says.below(5000);
        break;
      case 3: {  // a header of a record, or one that nearly is
        const std::uint64_t bytes = says.near(8);
        const std::uint64_t header = says.near((bytes + 15) / 8 * 8) << 32 |
                                     static_cast<std::uint32_t>(says.flag() ? bytes : 0xffffffff);
        if (!wire->ended) wire->to_node.append(reinterpret_cast<const char*>(&header), sizeof header);
        break;
      }
      case 4:
        if (!wire->ended) wire->to_node.append(says.below(6000), 'z');
        break;
      default:
        if (!wire->ended) wire->to_node += says.bytes(says.below(64));
    }
  });
}

}  // namespace gpusock::fuzz::of_peer_tcp
