#include "host_proxy/links/p2p/maker.hpp"

#include "host_proxy/links/p2p/p2p_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace gpusock::proxy {
namespace {

/// What the acceptor says of its memory.
struct OfferedMemory {
  std::uint64_t ring_bytes = 0;
  std::array<char, 32> shared_name{};  ///< the abstract Unix socket
  Ticket ticket{};
};
static_assert(sizeof(OfferedMemory) == 56);

class P2pSetup : public LinkSetup {
 public:
  void use_own_words(table::RingPair& rings) const override {
    SegmentHeader& header = rings_.link->header();
    rings.tx = {
        {rings.tx.memory.data, rings.tx.memory.capacity}, &header.tx_committed.value, &header.tx_consumed.value};
    rings.rx = {
        {rings.rx.memory.data, rings.rx.memory.capacity}, &header.rx_committed.value, &header.rx_consumed.value};
    if (!made_here_) std::swap(rings.tx, rings.rx);
  }

  std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                  LinkEvents& events) override {
    return std::make_unique<P2pLink>(std::move(stream), rings_.link, rings, events);
  }

 protected:
  explicit P2pSetup(bool made_here) : made_here_(made_here) {}
  void use(const std::shared_ptr<Segment>& segment) { rings_ = {segment, segment}; }

 private:
  bool made_here_;
};

class P2pOffer final : public P2pSetup {
 public:
  P2pOffer(SegmentPool& pool, SegmentOffers& offers, const LinkRequest& request)
      : P2pSetup(true), pool_(pool), offers_(offers) {
    constexpr auto kShared = SegmentPool::Use::shared;
    const auto segment = pool.take(kShared, pool.ring_bytes(kShared, request.ring_bytes),
                                   pool.placement_for(request.kernels));
    if (segment == nullptr) {
      failure_ = {ENOBUFS, "no memory for another connection's rings"};
      return;
    }
    use(segment);
    ticket_ = offers.offer(segment);
    offer_ = {segment->ring_bytes(), {}, *ticket_};
    std::memcpy(offer_.shared_name.data(), offers.name().data(),
                std::min(offers.name().size(), offer_.shared_name.size()));
  }
  ~P2pOffer() override { withdraw(); }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&offer_, 1)); }

  bool take_answer(std::span<const std::byte> answer) override {
    withdraw();
    pool_.settle(*rings_.link);
    return LinkSetup::take_answer(answer);
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
    const auto hex = [](char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); };
    // The name is this side's to check: a peer must not choose which Unix socket this process connects to.
    if (!std::all_of(offered.shared_name.begin(), offered.shared_name.end(), hex)) {
      failure_ = {EPROTO, "the peer's offer of shared memory has an invalid name"};
      return;
    }
    fetch_.emplace(network, pool, backlogs, std::string(offered.shared_name.begin(), offered.shared_name.end()),
                   offered.ticket, offered.ring_bytes, sink);
  }

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
  SegmentPool& pool_;
  bool kernels_;
  std::optional<SegmentFetch> fetch_;
};

}  // namespace

std::unique_ptr<LinkSetup> P2pMaker::start(const LinkRequest& request, std::span<const std::byte> offer,
                                           ReadySink& sink) {
  if (request.acceptor) return std::make_unique<P2pOffer>(segments_, offers_, request);
  return std::make_unique<P2pAnswer>(network_, segments_, full_backlogs_, request, offer, sink);
}

}  // namespace gpusock::proxy
