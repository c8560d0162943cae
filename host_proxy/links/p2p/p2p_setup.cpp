#include "host_proxy/links/p2p/p2p_setup.hpp"

#include "host_proxy/links/p2p/p2p_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace gpusock::proxy {
namespace {

/// What the acceptor says of its memory.
struct Offer {
  std::uint64_t ring_bytes = 0;
  std::array<char, 32> shared_name{};  ///< the abstract Unix socket
  Ticket ticket{};
};
static_assert(sizeof(Offer) == 56);

class P2pSetup : public LinkSetup {
 public:
  explicit P2pSetup(int side) : side_(side) {}

  const std::shared_ptr<Segment>& memory() const override { return segment_; }

  std::unique_ptr<Link> establish(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream> stream,
                                  LinkEvents& events) override {
    table::SocketSetup& setup = slots.view().setups[slot];
    setup.link_needs_proxy = 0;
    setup.tx = {segment_->callers_ring(side_), segment_->committed(side_), segment_->consumed(side_), 0};
    setup.rx = {segment_->callers_ring(1 - side_), segment_->committed(1 - side_), segment_->consumed(1 - side_), 0};
    return std::make_unique<P2pLink>(std::move(stream), segment_, side_, events);
  }

 protected:
  std::shared_ptr<Segment> segment_;

 private:
  int side_;
};

class P2pOffer final : public P2pSetup {
 public:
  P2pOffer(SegmentPool& pool, SegmentOffers& offers, const LinkRequest& request)
      : P2pSetup(0), pool_(pool), offers_(offers) {
    constexpr auto kShared = SegmentPool::Use::shared;
    segment_ = pool.take(kShared, pool.ring_bytes(kShared, request.ring_bytes), pool.placement_for(request.kernels));
    if (segment_ == nullptr) return;
    ticket_ = offers.offer(segment_);
    offer_ = {segment_->ring_bytes(), {}, *ticket_};
    std::memcpy(offer_.shared_name.data(), offers.name().data(),
                std::min(offers.name().size(), offer_.shared_name.size()));
  }
  ~P2pOffer() override { withdraw(); }

  State advance() override { return segment_ == nullptr ? State::failed : State::ready; }
  Failure failure() const override { return {ENOBUFS, "no memory for another connection's rings"}; }
  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&offer_, 1)); }

  bool take_answer(std::span<const std::byte> answer) override {
    withdraw();
    pool_.settle(*segment_);
    return answer.empty();
  }

 private:
  void withdraw() {
    if (ticket_) offers_.withdraw(*ticket_);
    ticket_.reset();
  }

  SegmentPool& pool_;
  SegmentOffers& offers_;
  std::optional<Ticket> ticket_;
  Offer offer_;
};

class P2pAnswer final : public P2pSetup {
 public:
  P2pAnswer(PosixNetwork& network, SegmentPool& pool, FullBacklogs& backlogs, const LinkRequest& request,
            std::span<const std::byte> offer, ReadySink& sink)
      : P2pSetup(1), pool_(pool), kernels_(request.kernels) {
    if (offer.size() != sizeof(Offer)) {
      failure_ = {EPROTO, "what was offered is no shared memory"};
      return;
    }
    Offer offered;
    std::memcpy(&offered, offer.data(), sizeof offered);
    const auto hex = [](char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); };
    if (!std::all_of(offered.shared_name.begin(), offered.shared_name.end(), hex)) {  // a peer does not choose whom we
                                                                                      // talk to here
      failure_ = {EPROTO, "what was offered is no name of ours"};
      return;
    }
    fetch_.emplace(network, pool, backlogs, std::string(offered.shared_name.begin(), offered.shared_name.end()),
                   offered.ticket, offered.ring_bytes, sink);
  }

  State advance() override {
    if (!fetch_) return segment_ == nullptr ? State::failed : State::ready;
    const auto fetched = fetch_->advance();
    if (fetched == SegmentFetch::State::waiting) return State::waiting;
    if (fetched == SegmentFetch::State::done) segment_ = fetch_->take();
    fetch_.reset();
    if (segment_ != nullptr && !pool_.can_use(*segment_, kernels_)) {
      segment_.reset();
      failure_ = {EHOSTUNREACH, "the peer's rings are in a GPU's memory, which this side's callers do not reach"};
    }
    return segment_ == nullptr ? State::failed : State::ready;
  }
  Failure failure() const override { return failure_; }

 private:
  SegmentPool& pool_;
  bool kernels_;
  Failure failure_{
      EHOSTUNREACH,
      "the peer is on another host (or in another network namespace, of another user, or its memory cannot be mapped)"};
  std::optional<SegmentFetch> fetch_;
};

}  // namespace

std::unique_ptr<LinkSetup> P2pMaker::offer(const LinkRequest& request, ReadySink&) {
  return std::make_unique<P2pOffer>(segments_, offers_, request);
}

std::unique_ptr<LinkSetup> P2pMaker::answer(const LinkRequest& request, std::span<const std::byte> offer,
                                            ReadySink& sink) {
  return std::make_unique<P2pAnswer>(network_, segments_, full_backlogs_, request, offer, sink);
}

}  // namespace gpusock::proxy
