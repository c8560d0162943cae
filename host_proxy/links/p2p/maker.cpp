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

/// The acceptor's offer: its memory, in two forms. The ticket leads to memory of this connection alone. A connector
/// takes it if it is in the same process, or if its device attaches memory at any time. In the same process the ticket
/// also leads to device memory, if kernels accept and some is free. The other form, `locator`, names memory that both
/// processes have mapped before. All other connectors take that.
struct OfferedMemory {
  std::uint64_t ring_bytes = 0;        ///< of the ticket's memory
  std::array<char, 32> shared_name{};  ///< name of the abstract Unix socket
  Ticket ticket{};
  HostRings::SlotLocator locator;
  Arenas::Id member{};  ///< the acceptor, if its kernels may use the slot in a GPU's memory
};
static_assert(sizeof(OfferedMemory) == 120);

/// The connector's answer: which memory it uses.
enum class Used : std::uint8_t { ticket = 1, slot = 2, device = 3, arena = 4, arenas = 5 };
struct Answer {
  Used used = Used::ticket;
  Arenas::Id member{};  ///< arena: whose arena it is; arenas (one of each side), slot: the connector
};
static_assert(sizeof(Answer) == 17);

constexpr const char* kInGpuMemory = "p2p in GPU memory: ";

class P2pSetup : public LinkSetup {
 public:
  void use_own_words(table::RingPair& rings) const override {
    Segment& own = *rings_.link;
    if (rings_.peers != nullptr) {  // each word is in the memory of the GPU that polls it
      Segment& peers = *rings_.peers;
      rings.tx = with_words(rings.tx.memory, rx_committed(peers), tx_consumed(own));
      rings.rx = with_words(rings.rx.memory, rx_committed(own), tx_consumed(peers));
      if (&own.header() == &peers.header()) use_copies_in_one(own.header(), rings);
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
  /// A word as callers use it: in the header, or in device memory. In device memory it has a copy in the header, which
  /// the proxy reads.
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

  /// Two arenas share one header for a slot. Its words have the names that they have for the maker.
  void use_copies_in_one(SegmentHeader& header, table::RingPair& rings) const {
    table::RingSetup& makers_tx = made_here_ ? rings.tx : rings.rx;
    table::RingSetup& makers_rx = made_here_ ? rings.rx : rings.tx;
    makers_tx.committed_copy = &header.tx_committed.value;
    makers_tx.consumed_copy = &header.tx_consumed.value;
    makers_rx.committed_copy = &header.rx_committed.value;
    makers_rx.consumed_copy = &header.rx_consumed.value;
  }

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
      common_ = rings->take(request.ring_bytes != 0 ? wanted : most, offer_.locator);
      shares_device_ = pool.uses_device_memory(request.kernels);
      if (shares_device_) offer_.member = rings->arenas().own_id();
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
    Answer says;
    if (answer.size() == sizeof says) std::memcpy(&says, answer.data(), sizeof says);
    if (answer.size() != sizeof says || !take(says, device)) {
      failure_ = {EPROTO, "the peer's answer names memory that it was not offered"};
      return false;
    }
    own_.reset();
    on_device_.reset();
    common_.reset();
    return true;
  }

 private:
  /// Takes the memory that the answer names. False if it was not offered.
  bool take(const Answer& answer, const DeviceRings& device) {
    if (answer.used == Used::ticket && own_ != nullptr) {
      pool_.end_sharing(*own_);
      use(own_);
      remark_ = device.remark;
      return true;
    }
    if (answer.used == Used::device && device.acceptors != nullptr) {
      use(device.acceptors, device.connectors);
      return true;
    }
    return common_ != nullptr && pool_.host_rings()->was_joined(offer_.locator) && take_slot(answer);
  }
  /// Takes the slot of the host rings, which both sides have.
  bool take_slot(const Answer& answer) {
    HostRings& rings = *pool_.host_rings();
    if (answer.used == Used::slot) {
      use(common_);
      if (shares_device_) remark_ = kInGpuMemory + rings.arenas().why_not(answer.member, offer_.locator.slot);
      return true;
    }
    const bool both = answer.used == Used::arenas;
    if ((!both && answer.used != Used::arena) || offer_.member == Arenas::kNobody) return false;
    const auto its = rings.on_device(offer_.locator, common_, answer.member);
    const auto own = both ? rings.on_device(offer_.locator, common_, offer_.member) : its;
    if (its == nullptr || own == nullptr) return false;
    use(own, its);
    return true;
  }

  void withdraw() {
    if (ticket_) offers_.withdraw(*ticket_);
    ticket_.reset();
  }

  SegmentPool& pool_;
  SegmentOffers& offers_;
  std::optional<Ticket> ticket_;
  OfferedMemory offer_;
  std::shared_ptr<Segment> own_;        // host memory that the ticket offers
  std::shared_ptr<Segment> on_device_;  // device memory that the ticket offers
  std::shared_ptr<Segment> common_;     // in the host rings
  bool shares_device_ = false;          // these callers may share device memory with those of another process
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
        answer_.used = Used::device;
        return;
      }
    }
    if (pool.platform().attaches_any_time() || find_local_offer(offered.ticket) != nullptr) {
      fetch(network, backlogs, offered, sink);
    } else {
      join(offered);
    }
  }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&answer_, 1)); }

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
      // This side checks the name: a peer must not choose which Unix socket this process connects to.
    } else if (!std::all_of(offered.shared_name.begin(), offered.shared_name.end(), hex)) {
      failure_ = {EPROTO, "the peer's offer of shared memory has an invalid name"};
    } else {
      fetch_.emplace(network, pool_, backlogs, std::string(offered.shared_name.begin(), offered.shared_name.end()),
                     offered.ticket, offered.ring_bytes, sink);
    }
  }

  /// Joins a slot in memory that was mapped when the context was made. Makes no call that may wait for kernels.
  void join(const OfferedMemory& offered) {
    using SlotLocator = HostRings::SlotLocator;
    const SlotLocator& locator = offered.locator;
    HostRings* const rings = pool_.host_rings();
    if (rings == nullptr || !rings->is_same(locator)) {
      failure_ = {EHOSTUNREACH,
                  "the peer is on another host, GPUSOCK_HOST_RINGS is not the same name in both processes (here: " +
                      (rings == nullptr ? pool_.why_no_host_rings() : rings->name()) +
                      "), or they have not the same /dev/shm (containers: --ipc=host)"};
    } else if (locator.state == SlotLocator::kTooSmall) {
      failure_ = {EHOSTUNREACH, "rings of this size do not fit into the peer's host rings"};
    } else if (locator.state == SlotLocator::kNoneFree) {
      failure_ = {ENOBUFS, why_none_is_free(*rings)};
    } else if (locator.state != SlotLocator::kOffered) {
      failure_ = {EPROTO, "the peer's offer of shared memory has an invalid state"};
    } else {
      attempt([&] { use_slot(*rings, offered, rings->join(locator)); });
    }
  }
  static std::string why_none_is_free(const HostRings& rings) {
    const std::uint32_t resting = rings.resting();
    const std::string rest = resting == 0 ? "; "
                                          : ", or rest for a second because their process has ended (" +
                                                std::to_string(resting) + " of them): try again, or ";
    return "all " + std::to_string(rings.connections()) + " host rings are in use" + rest +
           "start all with GPUSOCK_HOST_RINGS=" + rings.name() + ",connections=N for more";
  }
  /// Uses the slot: in a GPU's memory if both sides reach an arena, else in host memory.
  void use_slot(HostRings& rings, const OfferedMemory& offered, const std::shared_ptr<Segment>& common) {
    answer_.used = Used::slot;
    use(common);
    if (!pool_.uses_device_memory(kernels_)) return;
    const Arenas& arenas = rings.arenas();
    answer_.member = arenas.own_id();
    const auto meeting = arenas.meeting_with(offered.member, offered.locator.slot);
    const auto own = meeting ? rings.on_device(offered.locator, common, meeting->own) : nullptr;
    const bool both = meeting && meeting->own != meeting->others;
    const auto its = both ? rings.on_device(offered.locator, common, meeting->others) : own;
    if (own == nullptr || its == nullptr) {
      remark_ = kInGpuMemory + arenas.why_not(offered.member, offered.locator.slot);
      return;
    }
    own->start_words();  // before the answer: after it the acceptor's kernels use them
    use(own, its);
    if (both) {
      answer_.used = Used::arenas;
    } else {
      answer_ = {Used::arena, meeting->own};
    }
  }

  SegmentPool& pool_;
  bool kernels_;
  Answer answer_;
  std::optional<SegmentFetch> fetch_;
};

}  // namespace

P2pMaker::P2pMaker(PosixNetwork& network, SegmentPool& segments)
    : network_(network), segments_(segments), offers_(network) {
  HostRings* const rings = segments.host_rings();
  if (rings == nullptr || !segments.uses_device_memory(true)) return;
  Arenas& arenas = rings->arenas();
  arenas.enter(offers_.name(), segments.arena_bytes_max(), fetch_descriptors);
  if (arenas.own_id() == Arenas::kNobody) return;
  arenas.give_to_other_gpus(give_descriptor);
  given_.emplace(arenas);
  offers_.offer_for_good(arenas.own_id(), arenas.descriptor(),
                         [this](const Ticket& giver, Descriptor arena, Descriptor connection) {
                           given_->take(giver, std::move(arena), std::move(connection));
                         });
}

std::unique_ptr<LinkSetup> P2pMaker::start(const LinkRequest& request, std::span<const std::byte> offer,
                                           ReadySink& sink) {
  if (request.acceptor) return std::make_unique<P2pOffer>(segments_, offers_, request);
  return std::make_unique<P2pAnswer>(network_, segments_, full_backlogs_, request, offer, sink);
}

}  // namespace gpusock::proxy
