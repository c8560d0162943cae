#include "host_proxy/links/verbs/maker.hpp"

#include "gpusock/detail/socket_address.hpp"
#include "gpusock/error.hpp"
#include "host_proxy/links/mirrored_link.hpp"
#include "host_proxy/links/verbs/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace gpusock::proxy::verbs {
namespace {

class VerbsSetup final : public LinkSetup, private rdma::QueuePairEvents {
 public:
  VerbsSetup(VerbsMaker& maker, SegmentPool& segments, DeviceCopies* copies, std::shared_ptr<Activity> activity,
             const LinkRequest& request, ReadySink& sink)
      : maker_(maker),
        segments_(segments),
        sink_(sink),
        copies_(copies),
        activity_(std::move(activity)),
        records_(request.type == SocketType::seqpacket) {
    attempt([&] { prepare(maker, request); });
  }
  ~VerbsSetup() { end_trial(); }

  /// Goes on to answer this offer.
  void take_offer(std::span<const std::byte> offer) {
    if (failure_.error == 0) connect(offer);
  }

  State advance() override {
    if (failure_.error != 0) return State::failed;
    return trial_end_ns_ == 0 ? State::ready : look_at_trial();
  }
  Failure failure() const override { return failure_; }
  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&message_, 1)); }
  bool take_answer(std::span<const std::byte> answer) override { return connect(answer) && begin_trial(); }
  const std::shared_ptr<Segment>& memory() const override { return rings_; }

  std::unique_ptr<Link> establish(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream> stream,
                                  LinkEvents& events) override {
    table::SocketSetup& setup = slots.view().setups[slot];
    setup.link_needs_proxy = 1;
    setup.tx = slots.tx_setup(slot, rings_->callers_ring(1));
    setup.rx = slots.rx_setup(slot, rings_->callers_ring(0));
    std::uint64_t* arrived = Words(*parts_.segment).arrived;
    ringbuf::SystemAtomics::Ref<std::uint64_t>(*arrived).store(setup.rx.start, ringbuf::kRelaxed);  // relaxed: T3
                                                                                                    // publishes it, and
                                                                                                    // the peer writes
                                                                                                    // it only once it
                                                                                                    // was greeted
    const table::RingSetup rx = setup.rx;
    if (rings_ != parts_.segment) {
      auto staged = std::make_unique<MirroredLink>(
          *copies_, slots, slot, MirroredLink::Memory{rings_, parts_.segment, arrived}, *stream, events);
      staged->set_link(make_link(staged->tx(), rx, std::move(stream), staged->events()));
      return staged;
    }
    Arrivals arrivals;
    if (rings_->placement() == RingPlacement::host) {
      setup.rx.committed = arrived;
    } else {
      arrivals = Arrivals(rings_, rx.committed, rx.start);
    }
    return make_link(slots.tx_consumer(slot, rings_->ring(1)), rx, std::move(stream), events, std::move(arrivals));
  }

 private:
  void on_progress() override { sink_.on_ready(); }

  /// Writes a word of the peer's that is 0 to 0. Its acknowledgement says that both cards reach each other, and that
  /// whoever is at the address that the peer gave agrees to it.
  bool begin_trial() {
    const std::uint64_t closed = 0;
    const PeerMemory& peer = parts_.peer;
    const rdma::Write write{&closed, sizeof closed, 0, peer.words_address + kOpenAt, peer.words_key, true};
    if (parts_.pair->post({&write, 1}, true) != 0) return fail_trial(parts_.pair->failure());
    parts_.pair->set_events(this);
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
    parts_.pair->set_events(nullptr);
  }

  std::unique_ptr<Link> make_link(const ringbuf::ByteConsumer<>& tx, const table::RingSetup& rx,
                                  std::unique_ptr<ByteStream> stream, LinkEvents& events, Arrivals arrivals = {}) {
    return std::make_unique<VerbsLink>(std::move(parts_), activity_, std::move(stream), tx, rx.consumed, rx.start,
                                       events, std::move(arrivals));
  }

  template <class Do>
  bool attempt(Do what) {
    try {
      what();
      return true;
    } catch (const std::system_error& error) {
      failure_ = {error.code().value(), error.what()};
      return false;
    }
  }

  void prepare(VerbsMaker& maker, const LinkRequest& request) {
    const std::shared_ptr<rdma::Card> card = maker.card_at(request.local);
    ibv_pd* domain = card->domain();
    const std::uint64_t ring_bytes = segments_.ring_bytes(SegmentPool::Use::shared, request.own_ring_bytes());
    if (copies_ != nullptr && segments_.placement_for(request.kernels) == RingPlacement::device) {
      rings_ = take(ring_bytes, RingPlacement::device);
      if (auto keys = maker.device_rings().give(domain, *rings_)) {
        parts_.segment = rings_;
        parts_.rx = std::move(keys->rx);
        parts_.tx = std::move(keys->tx);
      }
    }
    if (parts_.segment == nullptr) {
      parts_.segment = take(ring_bytes, RingPlacement::host);
      if (rings_ == nullptr) rings_ = parts_.segment;
      parts_.rx = register_ring(domain, 0, rdma::Access::written_by_peers);
      parts_.tx = register_ring(domain, 1, rdma::Access::read_by_card);
    }
    const Words words(*parts_.segment);
    parts_.words = rdma::register_host(domain, words.arrived, kWordsBytes, rdma::Access::written_by_peers);
    parts_.pair = std::make_unique<rdma::QueuePair>(card);
    const ringbuf::RingMemory rx = parts_.segment->ring(0);
    message_ = make_message(parts_.pair->address(), {reinterpret_cast<std::uint64_t>(rx.data), rx.capacity,
                                                     reinterpret_cast<std::uint64_t>(words.arrived),
                                                     parts_.rx.remote_key(), parts_.words.remote_key()});
  }

  std::shared_ptr<Segment> take(std::uint64_t ring_bytes, RingPlacement placement) {
    auto segment = segments_.take(SegmentPool::Use::own, ring_bytes, placement);
    if (segment == nullptr) throw Error(ENOBUFS, "no memory for another connection's rings");
    return segment;
  }

  rdma::Registration register_ring(ibv_pd* domain, int which, rdma::Access access) {
    const ringbuf::RingMemory ring = parts_.segment->ring(which);
    return rdma::register_host(domain, ring.data, ring.capacity, access);
  }

  bool connect(std::span<const std::byte> said) {
    std::string reason;
    const auto peer = parse_message(said, records_ ? parts_.segment->ring_bytes() : 0, reason);
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
  DeviceCopies* copies_;
  std::shared_ptr<Activity> activity_;
  bool records_;
  std::uint64_t trial_end_ns_ = 0;  // 0: there is none
  Parts parts_;
  std::shared_ptr<Segment> rings_;  // the callers'; the card's as well, but where they are copied
  Message message_;
  Failure failure_;
};

}  // namespace

VerbsMaker::VerbsMaker(SegmentPool& segments, DeviceCopies* copies, DeviceRings device_rings)
    : segments_(segments),
      copies_(copies),
      device_rings_(std::move(device_rings)),
      activity_(std::make_shared<Activity>()) {}

VerbsMaker::~VerbsMaker() = default;

std::unique_ptr<LinkSetup> VerbsMaker::offer(const LinkRequest& request, ReadySink& sink) {
  return std::make_unique<VerbsSetup>(*this, segments_, copies_, activity_, request, sink);
}

std::unique_ptr<LinkSetup> VerbsMaker::answer(const LinkRequest& request, std::span<const std::byte> offer,
                                              ReadySink& sink) {
  auto setup = std::make_unique<VerbsSetup>(*this, segments_, copies_, activity_, request, sink);
  setup->take_offer(offer);
  return setup;
}

bool VerbsMaker::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const bool awaited = wants_polling();  // completions of words alone (greetings, credit) move nothing, and nobody is
                                         // woken for them
  bool any = false;
  for (const auto& [address, card] : cards_) any |= card->completions().poll() && awaited;
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

std::shared_ptr<rdma::Card> VerbsMaker::card_at(const Endpoint& local) {
  Endpoint address = local;
  address.port = 0;
  const std::string key = address.host_port();
  if (const auto found = cards_.find(key); found != cards_.end()) return found->second;
  detail::SocketAddress socket_address(address);
  const sockaddr& at = *socket_address.get();
  std::string reason;
  const std::optional<rdma::Place> place = rdma::find_place(at, reason);
  if (!place) throw Error(EADDRNOTAVAIL, reason);
  return cards_.emplace(key, std::make_shared<rdma::Card>(*place, at)).first->second;
}

bool VerbsMaker::has_devices(const std::string& sys) {
  std::error_code error;
  return !std::filesystem::is_empty(sys + "/class/infiniband_verbs", error) && !error;
}

}  // namespace gpusock::proxy::verbs
