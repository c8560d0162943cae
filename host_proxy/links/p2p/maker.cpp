#include "host_proxy/links/p2p/maker.hpp"

#include "host_proxy/links/p2p/p2p_link.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace gpusock::proxy {
namespace {

/// What the acceptor says of its memory. The ticket leads to memory of this connection alone. It suits a connector in
/// the same process, and one whose device attaches memory at any time. In the same process it also leads to memory of
/// the device, if kernels accept and there is some. `place` is in memory that both processes have mapped before. It
/// suits all others.
struct OfferedMemory {
  std::uint64_t ring_bytes = 0;        ///< of the ticket's memory
  std::array<char, 32> shared_name{};  ///< the abstract Unix socket
  Ticket ticket{};
  HostRings::Place place;
};
static_assert(sizeof(OfferedMemory) == 104);

/// The connector's answer: what it uses.
enum class Used : std::uint8_t { ticket = 1, place = 2, device = 3 };

constexpr const char* kOtherProcess = "p2p in GPU memory: the peer is another process";

class P2pSetup : public LinkSetup {
 public:
  void use_own_words(table::RingPair& rings) const override {
    Segment& own = *rings_.link;
    if (rings_.peers != nullptr) {  // each word in the memory of the GPU that polls it
      Segment& peers = *rings_.peers;
      rings.tx = with_words(rings.tx.memory, rx_committed(peers), tx_consumed(own));
      rings.rx = with_words(rings.rx.memory, rx_committed(own), tx_consumed(peers));
      return;
    }
    rings.tx = with_words(rings.tx.memory, tx_committed(own), tx_consumed(own));
    rings.rx = with_words(rings.rx.memory, rx_committed(own), rx_consumed(own));
    if (!made_here_) std::swap(rings.tx, rings.rx);
  }

  std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                  LinkEvents& events) override {
    return std::make_unique<P2pLink>(std::move(stream), rings_, rings, events);
  }

 protected:
  explicit P2pSetup(bool made_here) : made_here_(made_here) {}
  void use(const std::shared_ptr<Segment>& segment) { rings_ = {segment, segment, nullptr}; }
  void use(const std::shared_ptr<Segment>& own, const std::shared_ptr<Segment>& peers) {
    rings_ = {own, own, own == peers ? nullptr : peers};
  }

 private:
  /// A word as callers have it: in the header, or in device memory. Then the header has the copy of it that the proxy
  /// reads.
  struct Word {
    std::uint64_t* word;
    std::uint64_t* copy;
  };
  template <class InHeader, class OnDevice>
  static Word word(Segment& segment, InHeader in_header, OnDevice on_device) {
    std::uint64_t* const header = &(segment.header().*in_header).value;
    DeviceWords* const words = segment.device_words();
    return words == nullptr ? Word{header, nullptr} : Word{&(words->*on_device).value, header};
  }
  static Word tx_committed(Segment& of) { return word(of, &SegmentHeader::tx_committed, &DeviceWords::tx_committed); }
  static Word tx_consumed(Segment& of) { return word(of, &SegmentHeader::tx_consumed, &DeviceWords::tx_consumed); }
  static Word rx_committed(Segment& of) { return word(of, &SegmentHeader::rx_committed, &DeviceWords::rx_committed); }
  static Word rx_consumed(Segment& of) { return word(of, &SegmentHeader::rx_consumed, &DeviceWords::rx_consumed); }

  table::RingSetup with_words(const ringbuf::RingMemory& memory, const Word& committed, const Word& consumed) const {
    const std::uint64_t start = rings_.link->start();
    return {{memory.data, memory.capacity, start, committed.copy != nullptr},
            committed.word,
            consumed.word,
            start,
            committed.copy,
            consumed.copy};
  }

  bool made_here_;
};

class P2pOffer final : public P2pSetup {
 public:
  P2pOffer(SegmentPool& pool, SegmentOffers& offers, const LinkRequest& request)
      : P2pSetup(true), pool_(pool), offers_(offers) {
    constexpr auto kShared = SegmentPool::Use::shared;
    const std::uint64_t wanted = pool.ring_bytes(kShared, request.ring_bytes);
    own_ = pool.take(kShared, wanted, pool.placement_for_any_peer(request.kernels));
    on_device_ = pool.try_take_between_kernels(wanted, request.kernels);
    if (HostRings* rings = pool.host_rings()) {
      const std::uint64_t most = std::min(wanted, rings->room_bytes());
      common_ = rings->take(request.ring_bytes != 0 ? wanted : most, offer_.place);
    }
    if (own_ == nullptr && common_ == nullptr && on_device_ == nullptr) {
      failure_ = {ENOBUFS, "no memory for another connection's rings"};
      return;
    }
    for (const auto& segment : {own_, on_device_}) {
      if (segment != nullptr) segment->start_words();
    }
    use(own_ != nullptr ? own_ : common_ != nullptr ? common_ : on_device_);
    if (own_ == nullptr && on_device_ == nullptr) return;
    ticket_ = offers.offer(own_, on_device_);
    if (own_ != nullptr) offer_.ring_bytes = own_->ring_bytes();
    offer_.ticket = *ticket_;
    std::memcpy(offer_.shared_name.data(), offers.name().data(),
                std::min(offers.name().size(), offer_.shared_name.size()));
  }
  ~P2pOffer() override { withdraw(); }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&offer_, 1)); }

  bool take_answer(std::span<const std::byte> answer) override {
    const DeviceRings device = ticket_ ? offers_.device_rings(*ticket_) : DeviceRings();
    withdraw();
    const auto used = answer.size() == 1 ? static_cast<Used>(answer[0]) : Used{};
    if (used == Used::ticket && own_ != nullptr) {
      pool_.settle(*own_);
      use(own_);
      remark_ = device.remark;
    } else if (used == Used::place && common_ != nullptr && pool_.host_rings()->was_joined(offer_.place)) {
      use(common_);
      if (on_device_ != nullptr) remark_ = kOtherProcess;
    } else if (used == Used::device && device.acceptors != nullptr) {
      use(device.acceptors, device.connectors);
    } else {
      failure_ = {EPROTO, "the peer's answer names memory that it was not offered"};
      return false;
    }
    own_.reset();
    on_device_.reset();
    common_.reset();
    return true;
  }

 private:
  void withdraw() {
    if (ticket_) offers_.withdraw(*ticket_);
    ticket_.reset();
  }

  SegmentPool& pool_;
  SegmentOffers& offers_;
  std::optional<Ticket> ticket_;
  OfferedMemory offer_;
  std::shared_ptr<Segment> own_;        // the ticket's
  std::shared_ptr<Segment> on_device_;  // the ticket's in device memory
  std::shared_ptr<Segment> common_;     // in the host rings
};

class P2pAnswer final : public P2pSetup {
 public:
  P2pAnswer(PosixNetwork& network, SegmentPool& pool, FullBacklogs& backlogs, const LinkRequest& request,
            std::span<const std::byte> offer, ReadySink& sink)
      : P2pSetup(false), pool_(pool), kernels_(request.kernels) {
    if (offer.size() != sizeof(OfferedMemory)) {
      failure_ = {EPROTO, "the peer's offer of shared memory has the wrong size"};
      return;
    }
    OfferedMemory offered;
    std::memcpy(&offered, offer.data(), sizeof offered);
    if (pool.uses_device_memory(kernels_)) {
      const DeviceRings device = take_local_device_offer(offered.ticket, pool);
      remark_ = device.remark;
      if (device.acceptors != nullptr) {
        use(device.connectors, device.acceptors);
        used_ = Used::device;
        return;
      }
    }
    if (pool.platform().attaches_any_time() || find_local_offer(offered.ticket) != nullptr) {
      fetch(network, backlogs, offered, sink);
    } else {
      join(offered.place);
    }
  }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&used_, 1)); }

  State advance() override {
    if (!fetch_) return LinkSetup::advance();
    const auto fetched = fetch_->advance();
    if (fetched == SegmentFetch::State::waiting) return State::waiting;
    const auto segment = fetched == SegmentFetch::State::done ? fetch_->take() : nullptr;
    fetch_.reset();
    if (segment == nullptr) {
      failure_ = {EHOSTUNREACH,
                  "the peer is on another host (or in another network namespace, of another user, or its memory cannot "
                  "be mapped)"};
    } else if (!segment->reachable_from(pool_.platform(), kernels_)) {
      failure_ = {EHOSTUNREACH, "the peer's rings are in a GPU's memory, which this side's callers do not reach"};
    } else {
      use(segment);
    }
    return LinkSetup::advance();
  }

 private:
  void fetch(PosixNetwork& network, FullBacklogs& backlogs, const OfferedMemory& offered, ReadySink& sink) {
    const auto hex = [](char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); };
    if (offered.ring_bytes == 0) {
      failure_ = {ENOBUFS, "the peer has no memory for another connection's rings"};
      // The name is this side's to check: a peer must not choose which Unix socket this process connects to.
    } else if (!std::all_of(offered.shared_name.begin(), offered.shared_name.end(), hex)) {
      failure_ = {EPROTO, "the peer's offer of shared memory has an invalid name"};
    } else {
      fetch_.emplace(network, pool_, backlogs, std::string(offered.shared_name.begin(), offered.shared_name.end()),
                     offered.ticket, offered.ring_bytes, sink);
    }
  }

  /// Takes a place in memory that was mapped when the context was made: no call that may wait for kernels.
  void join(const HostRings::Place& place) {
    using Place = HostRings::Place;
    HostRings* const rings = pool_.host_rings();
    if (place.state == Place::kTooSmall) {
      failure_ = {EHOSTUNREACH, "rings of this size do not fit into the peer's host rings"};
    } else if (place.state == Place::kNoneFree) {
      failure_ = {ENOBUFS, "the peer's host rings are all in use (GPUSOCK_HOST_RINGS=NAME,connections=N)"};
    } else if (rings == nullptr || place.state != Place::kOffered || !rings->is_same(place)) {
      failure_ = {EHOSTUNREACH,
                  "the peer is on another host, or GPUSOCK_HOST_RINGS is not the same name in both processes"};
    } else if (attempt([&] { use(rings->join(place)); })) {
      used_ = Used::place;
      if (pool_.uses_device_memory(kernels_)) remark_ = kOtherProcess;
    }
  }

  SegmentPool& pool_;
  bool kernels_;
  Used used_ = Used::ticket;
  std::optional<SegmentFetch> fetch_;
};

}  // namespace

std::unique_ptr<LinkSetup> P2pMaker::start(const LinkRequest& request, std::span<const std::byte> offer,
                                           ReadySink& sink) {
  if (request.acceptor) return std::make_unique<P2pOffer>(segments_, offers_, request);
  return std::make_unique<P2pAnswer>(network_, segments_, full_backlogs_, request, offer, sink);
}

}  // namespace gpusock::proxy
