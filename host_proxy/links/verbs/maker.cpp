#include "host_proxy/links/verbs/maker.hpp"

#include "plain_types/socket_address.hpp"
#include "plain_types/error.hpp"
#include "host_proxy/base/random.hpp"
#include "host_proxy/links/one_sided_link.hpp"
#include "host_proxy/links/verbs/transport.hpp"
#include "ringbuf/atomics.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace gpusock::proxy::verbs {
namespace {

class VerbsSetup final : public LinkSetup {
 public:
  VerbsSetup(VerbsMaker& maker, SegmentPool& segments, std::shared_ptr<Activity> activity, const LinkRequest& request,
             std::span<const std::byte> offer, ReadySink& sink)
      : maker_(maker),
        segments_(segments),
        sink_(sink),
        activity_(std::move(activity)),
        records_(request.type == SocketType::seqpacket) {
    if (attempt([&] { make_half(request); }) && !request.acceptor) connect(offer);
  }
  ~VerbsSetup() { end_trial(); }

  State advance() override {
    return failure_.error != 0 || trial_end_ns_ == 0 ? LinkSetup::advance() : look_at_trial();
  }
  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&message_, 1)); }
  bool take_answer(std::span<const std::byte> answer) override { return connect(answer) && begin_trial(); }

  void use_own_words(table::RingPair& rings) const override {
    std::uint64_t* const word = &rings_.link->header().rx_committed.value;
    if (parts_.kernels_word) {
      rings.rx.committed = rings_.link->nic_word();
      rings.rx.committed_copy = word;
      rings.rx.memory.words_are_kept = true;
      rings.rx.memory.bias = message_.memory.kernels_word_bias;
    } else if (rings_.link->placement() == RingPlacement::host) {
      rings.rx.committed = word;
    }
  }

  std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                  LinkEvents& events) override {
    // Relaxed: T3 publishes it, and the peer writes it only after this side's set-up words.
    ringbuf::SystemAtomics::Ref<std::uint64_t>(rings_.link->header().rx_committed.value)
        .store(rings.rx.start, ringbuf::kRelaxed);
    return std::make_unique<OneSidedLink>(std::make_unique<VerbsTransport>(std::move(parts_), activity_, rings),
                                          std::move(stream), rings, events);
  }

 private:
  /// Writes 0 into a word of the peer that is already 0. The acknowledgement shows that both NICs reach each other, and
  /// that the program at the address that the peer gave has granted this key.
  bool begin_trial() {
    const std::uint64_t nothing = 0;
    const PeerMemory& peer = parts_.peer;
    const rdma::Write write{&nothing, sizeof nothing, 0, peer.words_address + kCreditAt, peer.words_key, true};
    if (parts_.pair->post({&write, 1}, true) != 0) return fail_trial(parts_.pair->failure());
    parts_.pair->set_on_progress([this] { sink_.on_ready(); });
    trial_end_ns_ = maker_.now_ns() + kTrialNs;
    maker_.begin_trial({&sink_, trial_end_ns_});
    return true;
  }

  State look_at_trial() {
    const rdma::QueuePair& pair = *parts_.pair;
    if (pair.failed()) {
      fail_trial(pair.failure());
    } else if (pair.outstanding() == 0) {
      end_trial();
      return State::ready;
    } else if (maker_.now_ns() < trial_end_ns_) {
      return State::waiting;
    } else {
      fail_trial("no acknowledgement for " + std::to_string(kTrialNs / 1'000'000) + " ms");
    }
    end_trial();
    return State::failed;
  }

  bool fail_trial(const std::string& why) {
    failure_ = {EHOSTUNREACH, "nothing reaches the peer's RDMA device: " + why};
    return false;
  }

  void end_trial() {
    if (trial_end_ns_ == 0) return;
    trial_end_ns_ = 0;
    maker_.end_trial(sink_);
    parts_.pair->set_on_progress({});
  }

  void make_half(const LinkRequest& request) {
    const std::shared_ptr<rdma::Device> device = maker_.device_at(request.local);
    ibv_pd* domain = device->domain();
    const std::uint64_t ring_bytes = segments_.ring_bytes(SegmentPool::Use::shared, request.own_ring_bytes());
    const RingPlacement placement = segments_.placement_for(request.kernels);
    rings_.callers = placement == RingPlacement::device ? segments_.require(ring_bytes, placement)
                                                        : segments_.try_take_on_device(ring_bytes, request.kernels);
    if (rings_.callers != nullptr) {
      if (auto keys = maker_.device_rings().give(domain, *rings_.callers)) {
        rings_.link = rings_.callers;
        parts_.rx = std::move(keys->rx);
        parts_.tx = std::move(keys->tx);
        parts_.kernels_word = std::move(keys->word);
      } else if (placement != RingPlacement::device) {
        rings_.callers.reset();  // device memory is not worth the copies
      }
    }
    if (rings_.link == nullptr) {
      rings_.link = segments_.require(ring_bytes, RingPlacement::host);
      if (rings_.callers == nullptr) rings_.callers = rings_.link;
      const RingMemories rings = rings_.link->proxy_rings();
      parts_.rx = rdma::register_host(domain, rings.rx.data, rings.rx.capacity, rdma::Access::written_by_peers);
      parts_.tx = rdma::register_host(domain, rings.tx.data, rings.tx.capacity, rdma::Access::read_by_nic);
    }
    parts_.segment = rings_.link;
    SegmentHeader* const words = &rings_.link->header();
    parts_.words = rdma::register_host(domain, words, kWordsBytes, rdma::Access::written_by_peers);
    parts_.pair = std::make_unique<rdma::QueuePair>(device);
    const ringbuf::RingMemory rx = rings_.link->proxy_rings().rx;
    PeerMemory memory{reinterpret_cast<std::uint64_t>(rx.data), rx.capacity, reinterpret_cast<std::uint64_t>(words),
                      parts_.rx.remote_key(), parts_.words.remote_key()};
    if (parts_.kernels_word) offer_kernels_word(memory);
    message_ = make_message(parts_.pair->address(), memory);
  }

  /// The peer of an earlier connection may have left any value in the word. Its key is no longer valid, so it cannot
  /// have chosen a value that fits the bias drawn now.
  void offer_kernels_word(PeerMemory& memory) const {
    memory.kernels_word_address = reinterpret_cast<std::uint64_t>(rings_.link->proxy_nic_word());
    const auto random = std::bit_cast<std::uint64_t>(random_bytes<sizeof(std::uint64_t)>());
    memory.kernels_word_bias = (random & ringbuf::RingMemory::kBiasMax) | 1;  // not 0
    memory.kernels_word_key = parts_.kernels_word.remote_key();
    memory.has_kernels_word = 1;
  }

  bool connect(std::span<const std::byte> said) {
    std::string reason;
    const auto peer = parse_message(said, records_ ? rings_.link->ring_bytes() : 0, reason);
    if (!peer) {
      failure_ = {EPROTO, reason};
      return false;
    }
    parts_.peer = peer->memory;
    return attempt([&] { parts_.pair->connect(peer->pair); });
  }

  VerbsMaker& maker_;
  SegmentPool& segments_;
  ReadySink& sink_;
  std::shared_ptr<Activity> activity_;
  bool records_;
  std::uint64_t trial_end_ns_ = 0;  // 0: there is no trial
  Parts parts_;
  Message message_;
};

}  // namespace

VerbsMaker::VerbsMaker(SegmentPool& segments, DeviceRings device_rings)
    : segments_(segments), device_rings_(std::move(device_rings)), activity_(std::make_shared<Activity>()) {}

VerbsMaker::~VerbsMaker() = default;

std::unique_ptr<LinkSetup> VerbsMaker::start(const LinkRequest& request, std::span<const std::byte> offer,
                                             ReadySink& sink) {
  return std::make_unique<VerbsSetup>(*this, segments_, activity_, request, offer, sink);
}

bool VerbsMaker::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const bool awaited = wants_polling();  // completions of credit alone move no bytes, and wake no
                                         // caller
  bool any = false;
  for (const auto& [address, device] : devices_) any |= device->completions().poll() && awaited;
  if (trials_.empty()) return any;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    if (now_ns >= trials_[i].until_ns) trials_[i].sink->on_ready();
  }
  return any;
}

bool VerbsMaker::wants_polling() const { return activity_->busy != 0 || !trials_.empty(); }

void VerbsMaker::end_trial(const ReadySink& sink) {
  std::erase_if(trials_, [&](const Trial& trial) { return trial.sink == &sink; });
}

std::shared_ptr<rdma::Device> VerbsMaker::device_at(const Endpoint& local) {
  Endpoint address = local;
  address.port = 0;
  const std::string key = address.host_port();
  if (const auto found = devices_.find(key); found != devices_.end()) return found->second;
  detail::SocketAddress socket_address(address);
  const sockaddr& at = *socket_address.get();
  std::string reason;
  const std::optional<rdma::PortId> port_id = rdma::find_port(at, reason);
  if (!port_id) throw Error(EADDRNOTAVAIL, reason);
  return devices_.emplace(key, std::make_shared<rdma::Device>(*port_id, at)).first->second;
}

bool VerbsMaker::has_devices(const std::string& sys) {
  std::error_code error;
  return !std::filesystem::is_empty(sys + "/class/infiniband_verbs", error) && !error;
}

}  // namespace gpusock::proxy::verbs
