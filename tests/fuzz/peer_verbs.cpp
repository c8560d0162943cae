// A malicious peer on the verbs link: its NIC writes what it likes where its keys let it. The NIC is
// fake_verbs.cpp's.
#include "host_proxy/links/verbs/maker.hpp"
#include "host_proxy/links/verbs/message.hpp"
#include "tests/fuzz/session.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

namespace gpusock::fuzz::of_peer_verbs {

namespace {

/// As it is, and heard by the peer: what the node offers or answers has the keys to its memory.
class Overheard final : public proxy::LinkMaker {
 public:
  explicit Overheard(proxy::verbs::VerbsMaker& maker) : maker_(maker) {}
  LinkKind kind() const override { return maker_.kind(); }
  std::unique_ptr<proxy::LinkSetup> start(const proxy::LinkRequest& request, std::span<const std::byte> offer,
                                          proxy::ReadySink& sink) override {
    return hear(maker_.start(request, offer, sink));
  }
  bool poll(std::uint64_t now_ns) override { return maker_.poll(now_ns); }
  bool wants_polling() const override { return maker_.wants_polling(); }

  proxy::verbs::Message said;

 private:
  std::unique_ptr<proxy::LinkSetup> hear(std::unique_ptr<proxy::LinkSetup> setup) {
    FUZZ_CHECK(setup->message().size() == sizeof said);
    std::memcpy(&said, setup->message().data(), sizeof said);
    return setup;
  }
  proxy::verbs::VerbsMaker& maker_;
};

}  // namespace

FUZZ_TARGET(peer_verbs) {
  fake::reset();
  {
    const std::uint8_t how = input.byte();
    // Rings in device memory are the NIC's to reach, or copied.
    Node node(how < 0x80 ? RingPlacement::host : RingPlacement::device), other;
    proxy::verbs::VerbsMaker maker(node.segments, proxy::verbs::DeviceRings((how & 0x40) != 0));
    proxy::verbs::VerbsMaker others_maker(other.segments, proxy::verbs::DeviceRings(false));
    Overheard overheard(maker);
    node.add(overheard);
    other.add(others_maker);
    node.start();
    other.start();
    proxy::SegmentPool segments(node.platform, {Node::kRingBytes, Node::kRingBytes}, 0);
    proxy::verbs::VerbsMaker peers_maker(segments, proxy::verbs::DeviceRings(false));
    proxy::LinkResources peer{{&peers_maker}, nullptr, Node::kRingBytes, "swordfish"};
    Endpoint asked = WireStream::here();
    asked.link = LinkKind::verbs;
    if ((how & 1) != 0) asked.type = SocketType::seqpacket;
    const bool holds_work = input.flag();
    std::shared_ptr<Wire> wire;
    std::unique_ptr<proxy::LinkSetup> setup;
    const Socket socket = Session::establish(node, peer, asked, input.flag(), wire, setup);
    FUZZ_CHECK(socket >= 0);
    const proxy::verbs::Message granted = overheard.said;
    const auto pairs = fake::pair_numbers();
    asked.type = SocketType::stream;
    Neighbour neighbour(node, other, asked, [] { fake::work(16); });
    fake::nic().holds_work = holds_work;
    const table::RingPair shared = node.setup_of(socket).rings;
    using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
    // What the peer's NIC reaches, as long as the keys are good.
    const auto write = [&](std::uint64_t at, std::uint64_t value) {
      if (std::byte* word = fake::reach(granted.memory.words_key, granted.memory.words_address + at, sizeof value)) {
        Ref(*reinterpret_cast<std::uint64_t*>(word)).store(value, ringbuf::kRelease);
      }
    };
    const auto write_for_kernels = [&](std::uint64_t position) {
      const proxy::verbs::PeerMemory& memory = granted.memory;
      if (std::byte* word = fake::reach(memory.kernels_word_key, memory.kernels_word_address, sizeof position)) {
        Ref(*reinterpret_cast<std::uint64_t*>(word)).store(position + memory.kernels_word_bias, ringbuf::kRelease);
      }
    };
    const auto say = [&](std::uint64_t kind, std::uint64_t value) {
      const std::uint64_t notice[] = {kind, value};
      if (!wire->ended) wire->to_node.append(reinterpret_cast<const char*>(notice), sizeof notice);
    };
    std::uint64_t arrived = shared.rx.start;
    run_session(node, socket, neighbour, input, [&](Input& says) {
      switch (says.below(10)) {
        case 0:
          fake::work(says.below(16));
          break;
        case 1:
          peers_maker.poll(0);
          break;
        case 2:  // honest set-up words, and what follows them: see one_sided_link.hpp
          say(16 + says.below(5), says.near(1000));
          break;
        case 3: {  // honest bytes
          const std::uint64_t room = Node::kRingBytes - (arrived - Ref(*shared.rx.consumed).load(ringbuf::kRelaxed));
          arrived += std::min<std::uint64_t>(room <= Node::kRingBytes ? room : 0, says.below(256) * 8);
          write_for_kernels(arrived);
          write(proxy::verbs::kArrivedAt, arrived);
          break;
        }
        case 4:
          write(proxy::verbs::kArrivedAt, says.near(arrived));
          if (says.flag()) write_for_kernels(says.near(arrived));
          break;
        case 5:
          write(proxy::verbs::kCreditAt, says.near(says.below(8) * 512));
          break;
        case 6:
          say(says.below(5), says.near(arrived - shared.rx.start));
          break;
        case 7: {
          const std::uint64_t bytes = says.near(8);
          const std::uint64_t header = says.near((bytes + 15) / 8 * 8) << 32 |
                                       static_cast<std::uint32_t>(says.byte() < 0xc0 ? bytes : 0xffffffff);
          const std::uint64_t at = says.below(4096) / 8 * 8 % Node::kRingBytes;
          if (std::byte* ring = fake::reach(granted.memory.ring_key, granted.memory.ring_address + at, sizeof header))
            std::memcpy(ring, &header, sizeof header);
          break;
        }
        case 8:
          if (says.byte() % 8 == 0) {
            const std::uint32_t pair = pairs[says.below(pairs.size())];
            const auto left = fake::pair_numbers();
            if (std::find(left.begin(), left.end(), pair) != left.end()) fake::break_pair(pair, IBV_WC_RETRY_EXC_ERR);
          }
          break;
        default:
          wire->ended = says.byte() % 4 == 0;
          wire->reset = says.byte() % 8 == 0;
          break;
      }
    });
    FUZZ_CHECK(!fake::nic().overflowed);
    setup.reset();
  }
  FUZZ_CHECK(fake::nic().regions == 0 && fake::nic().pairs == 0);
}

}  // namespace gpusock::fuzz::of_peer_verbs
