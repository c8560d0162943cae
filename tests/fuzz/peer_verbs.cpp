// A malicious peer on the verbs link: its card writes what it likes where its keys let it. The card is fake_verbs.cpp's.
#include "host_proxy/verbs/maker.hpp"
#include "host_proxy/verbs/words.hpp"
#include "tests/fuzz/session.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

namespace gpusock::fuzz::of_peer_verbs {

FUZZ_TARGET(peer_verbs) {
  fake::reset();
  {
    Node node;
    proxy::verbs::VerbsMaker maker(node.segments);
    node.add(maker);
    node.start();
    proxy::SegmentPool segments(node.platform, {Node::kRingBytes, Node::kRingBytes}, 0);
    proxy::verbs::VerbsMaker peers_maker(segments);
    proxy::LinkResources peer{{&peers_maker}, nullptr, Node::kRingBytes, "swordfish"};
    Endpoint asked = WireStream::here();
    asked.link = LinkKind::verbs;
    if (input.flag()) asked.type = SocketType::seqpacket;
    const bool holds_work = input.flag();
    std::shared_ptr<Wire> wire;
    std::unique_ptr<proxy::LinkSetup> setup;
    const Socket socket = Session::establish(node, peer, asked, input.flag(), wire, setup);
    FUZZ_CHECK(socket >= 0);
    fake::card().holds_work = holds_work;
    const table::SocketSetup shared = node.setup_of(socket);
    auto* const base = reinterpret_cast<std::byte*>(shared.rx.committed);  // of the words that the peer's key covers
    const auto word = [base](std::uint64_t at) { return ringbuf::SystemAtomics::Ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(base + at)); };
    const auto write = [&](std::uint64_t at, std::uint64_t value) { word(at).store(value, ringbuf::kRelease); };
    const auto pairs = fake::pair_numbers();
    const auto own = std::weak_ptr(setup->memory());
    std::uint64_t arrived = shared.rx.start;
    bool there = true;  // the node's memory stays mapped until its connection is retired
    run_session(node, socket, input, [&](Input& says) {
      there = there && node.proxy->has_connections();
      if (!there) return;
      switch (says.below(10)) {
        case 0: fake::work(says.below(16)); break;
        case 1: peers_maker.poll(0); break;
        case 2:  // the honest greeting
          write(proxy::verbs::kStartAt, says.near(1000));
          write(proxy::verbs::kOpenAt, 1);
          break;
        case 3: {  // honest bytes
          const std::uint64_t room = Node::kRingBytes - (arrived - ringbuf::SystemAtomics::Ref<std::uint64_t>(*shared.rx.consumed).load(ringbuf::kRelaxed));
          arrived += std::min<std::uint64_t>(room <= Node::kRingBytes ? room : 0, says.below(256) * 8);
          write(proxy::verbs::kArrivedAt, arrived);
          break;
        }
        case 4: write(proxy::verbs::kArrivedAt, says.near(arrived)); break;
        case 5: write(proxy::verbs::kCreditAt, says.near(says.below(8) * 512)); break;
        case 6: {
          const std::uint64_t notice[] = {says.below(5), says.near(arrived - shared.rx.start)};
          if (!wire->ended) wire->to_node.append(reinterpret_cast<const char*>(notice), sizeof notice);
          break;
        }
        case 7: {
          const std::uint64_t bytes = says.near(8);
          const std::uint64_t header = says.near((bytes + 15) / 8 * 8) << 32 | static_cast<std::uint32_t>(says.byte() < 0xc0 ? bytes : 0xffffffff);
          std::memcpy(shared.rx.memory.data + says.below(4096) / 8 * 8 % Node::kRingBytes, &header, sizeof header);
          break;
        }
        case 8:
          if (says.byte() % 8 == 0) fake::break_pair(pairs[says.below(pairs.size())], IBV_WC_RETRY_EXC_ERR);
          break;
        default:
          wire->ended = says.byte() % 4 == 0;
          wire->reset = says.byte() % 8 == 0;
          break;
      }
    });
    FUZZ_CHECK(!fake::card().overflowed);
    setup.reset();
  }
  FUZZ_CHECK(fake::card().regions == 0 && fake::card().pairs == 0);
}

}  // namespace gpusock::fuzz::of_peer_verbs
