#include "host_proxy/links/verbs/link.hpp"

#include "host_proxy/base/log.hpp"
#include "rdma/visibility.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

namespace gpusock::proxy::verbs {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

/// A batch is at most this long, and a quarter of the tx ring: its space comes back when all of it is complete, and
/// callers fill the rest meanwhile.
constexpr std::uint64_t kBatchBytes = 1 << 20;
/// The writes of a batch: its bytes in up to three pieces (each ring may wrap once), and the position.
constexpr std::size_t kBatchWrites = 4;
/// Credit for less than a quarter of the ring is given after this many looks at it: by then it is the last for now, and
/// a caller that waits for a whole ring must not wait for a peer that has no credit.
constexpr int kLooks = 8;

}  // namespace

VerbsLink::VerbsLink(Parts parts, std::shared_ptr<Activity> activity, std::unique_ptr<ByteStream> stream,
                     const table::RingPair& rings, LinkEvents& events)
    : parts_(std::move(parts)),
      words_(parts_.segment->header()),
      activity_(std::move(activity)),
      stream_(*stream),
      tx_(rings.tx.consumer()),
      tx_start_(rings.tx.start),
      rx_consumed_(rings.rx.consumed),
      rx_start_(rings.rx.start),
      rx_bytes_(parts_.segment->ring_bytes()),
      events_(events),
      arrivals_(rings.rx.committed == &words_.rx_committed.value
                    ? Arrivals()
                    : Arrivals(parts_.segment, rings.rx.committed, rings.rx.start)),
      inline_bytes_(parts_.segment->placement() == RingPlacement::host ? parts_.pair->inline_bytes() : 0),
      control_(std::move(stream), *this) {
  parts_.pair->set_events(this);
}

VerbsLink::~VerbsLink() { forget_flights(); }

bool VerbsLink::pump() {
  if (failed_) return false;
  if (parts_.pair->failed() && !broken_) take_breakage();
  bool moved = control_.pump();
  if (!failed_) moved |= greet();
  if (!failed_) moved |= receive();
  if (!failed_) take_credit();
  if (!failed_) moved |= sending_is_over() ? drop_committed() : transmit();
  if (!failed_) moved |= end_if_all_is_sent();
  return moved;
}

/// What is under way the card reports itself. Bytes that wait for credit it knows nothing of.
std::uint64_t VerbsLink::tend(std::uint64_t now_ns) {
  if (probe_.is_due(now_ns, !failed_ && unsent_ != 0, credit_)) control_.probe();
  return probe_.due_ns();
}

/// Says where this side's positions begin, so that the peer can write. The word `open` is a message of its own: see V6.
bool VerbsLink::greet() {
  if (greeted_ || broken_) return false;
  const std::uint64_t start = rx_start_, open = 1;
  const PeerMemory& peer = parts_.peer;
  const rdma::Write writes[] = {{&start, sizeof start, 0, peer.words_address + kStartAt, peer.words_key, true},
                                {&open, sizeof open, 0, peer.words_address + kOpenAt, peer.words_key, true}};
  if (parts_.pair->post(writes, true) != 0) return false;
  greeted_ = true;
  return true;
}

VerbsLink::Received VerbsLink::look_at_rx() const {
  const std::uint64_t consumed = Ref(*rx_consumed_).load(ringbuf::kAcquire) - rx_start_;  // P2, pairs with C2
  // Read behind `consumed`: the peer writes no more than what was granted, and only this thread grants.
  return {consumed, rdma::load_word_of_card(words_.rx_committed.value) - rx_start_};
}

bool VerbsLink::is_possible(const Received& received) const {
  return received.arrived - credited_ <= rx_bytes_ && received.arrived - received.consumed <= rx_bytes_;
}

bool VerbsLink::receive() {
  const Received received = look_at_rx();
  if (!is_possible(received)) {
    fail(EPROTO, "it wrote past what it was granted");
    return false;
  }
  const int passed_on = arrivals_.pass_on(rx_start_ + received.arrived);
  if (passed_on < 0) {
    stream_.reset_on_close();  // the peer must not take it for an orderly end
    fail(-passed_on,
         passed_on == -EPROTO ? "its position went back" : "what the card wrote could not be made visible to the GPU");
    return false;
  }
  return give_credit(received) || passed_on > 0;
}

/// Tells the peer what this side's callers have consumed, when that is worth a write or the peer may wait for it.
bool VerbsLink::give_credit(const Received& received) {
  const std::uint64_t consumed = received.consumed;
  uncredited_ = deaf_ || broken_ ? 0 : consumed - credited_;
  if (uncredited_ == 0) {
    looks_ = 0;
    return false;
  }
  const bool peer_may_wait = received.arrived - credited_ == rx_bytes_;
  if (uncredited_ < rx_bytes_ / 4 && !peer_may_wait && ++looks_ < kLooks) return false;
  const rdma::Write write{&consumed, sizeof consumed, 0, parts_.peer.words_address + kCreditAt, parts_.peer.words_key,
                          true};
  if (parts_.pair->post({&write, 1}, false) != 0) return false;  // later; or take_breakage() will see why
  credited_ = consumed;
  uncredited_ = 0;
  looks_ = 0;
  return true;
}

/// Credit that no bytes wait for is no work: the proxy sleeps, and the card tells nobody of it.
void VerbsLink::take_credit() {
  if (!open_) {
    if (rdma::load_word_of_card(words_.open.value) == 0) return;
    peer_start_ = rdma::load_word_of_card(words_.start.value);
    open_ = true;
  }
  const std::uint64_t credit = rdma::load_word_of_card(words_.tx_consumed.value);
  if (credit - credit_ > sent_ - credit_) {
    fail(EPROTO, "it gave credit for what was not sent");
    return;
  }
  credit_ = credit;
}

bool VerbsLink::transmit() {
  bool moved = false;
  const std::uint64_t batch = std::min(kBatchBytes, tx_.memory().capacity / 4);
  for (;;) {
    const std::uint64_t ready = tx_.readable();
    if (ready == ringbuf::kRingCorrupt) {
      fail(EPROTO, "its callers committed more than the ring holds");
      return moved;
    }
    unsent_ = ready - (sent_ - freed_);
    if (unsent_ == 0 || !open_ || parts_.pair->room() < kBatchWrites || flying_ == flights_.size()) return moved;
    const std::uint64_t window = parts_.peer.ring_bytes - (sent_ - credit_);
    const std::uint64_t bytes = std::min({unsent_, window, batch});
    if (bytes == 0 || !post_bytes(bytes)) return moved;
    unsent_ -= bytes;
    moved = true;
  }
}

/// Posts the next bytes and the position behind them.
bool VerbsLink::post_bytes(std::uint64_t bytes) {
  std::array<rdma::Write, kBatchWrites> writes;
  std::size_t count = 0;
  const PeerMemory& peer = parts_.peer;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t position = sent_ + done;
    const ringbuf::RingSpan from = tx_.memory().spans(tx_start_ + position, bytes - done).first;
    const std::uint64_t to = position & (peer.ring_bytes - 1);
    const std::uint64_t piece = std::min(from.bytes, peer.ring_bytes - to);
    const bool copied = piece <= inline_bytes_;
    writes[count++] = {
        from.data, static_cast<std::uint32_t>(piece), parts_.tx.local_key(), peer.ring_address + to, peer.ring_key,
        copied};
    done += piece;
  }
  const std::uint64_t arrived = peer_start_ + sent_ + bytes;
  writes[count++] = {&arrived, sizeof arrived, 0, peer.words_address + kArrivedAt, peer.words_key, true};
  if (parts_.pair->post(std::span(writes).first(count), true) != 0) return false;
  sent_ += bytes;
  take_off(sent_);
  return true;
}

void VerbsLink::take_off(std::uint64_t end) {
  if (flying_ == 0) ++activity_->busy;
  flights_[(first_flight_ + flying_++) % flights_.size()] = {parts_.pair->posted(), end};
}

/// Gives back what complete batches carried.
void VerbsLink::land() {
  const std::uint64_t before = freed_;
  const std::size_t flew = flying_;
  for (; flying_ != 0; --flying_, ++first_flight_) {
    const Flight& flight = flights_[first_flight_ % flights_.size()];
    if (static_cast<std::int32_t>(parts_.pair->completed() - flight.request) < 0) break;
    freed_ = std::max(freed_, flight.end);  // what was dropped meanwhile has been given back
  }
  if (flew != 0 && flying_ == 0) --activity_->busy;
  if (freed_ != before) tx_.release(freed_ - before);
}

/// The peer reads no more: what is committed reaches nobody, and its senders hear -EPIPE. What is still under way may
/// be overwritten, for the same reason.
bool VerbsLink::drop_committed() {
  const std::uint64_t ready = tx_.readable();
  unsent_ = 0;
  if (ready == 0 || ready == ringbuf::kRingCorrupt) return false;
  tx_.release(ready);
  freed_ += ready;
  return true;
}

/// Once all is complete, and with it in the peer's ring, the peer is told how much it was.
bool VerbsLink::end_if_all_is_sent() {
  bool said = false;
  const bool under_way = flying_ != 0 && !sending_is_over();
  if (end_wanted_ && !control_.ended() && unsent_ == 0 && !under_way) {
    control_.say_ended(sent_);
    said = true;
  }
  if (close_wanted_ && !closed_said_ && control_.ended()) {
    control_.say_closed();
    closed_said_ = said = true;
  }
  if (said) control_.pump();
  return said;
}

void VerbsLink::end_receiving() {
  deaf_ = true;
  control_.say_deaf();
}

bool VerbsLink::finished() const {
  return failed_ || control_.failed() || (control_.ended() && (!close_wanted_ || closed_said_) && control_.all_said());
}

/// The card tells nobody what it writes: while the proxy sleeps the peer may use up all that it was granted. So callers
/// must say what they consume, whatever has arrived by now.
bool VerbsLink::waits_for_credit() const { return !failed_ && !deaf_ && !broken_; }

Link::Traffic VerbsLink::traffic() const {
  return {sent_, rdma::load_word_of_card(words_.rx_committed.value) - rx_start_};
}

/// Completions were taken, in the maker's poll.
void VerbsLink::on_progress() {
  land();
  if (stream_.sink != nullptr) stream_.sink->on_ready();  // pump() has something to do
}

/// The queue pair is broken. That is no failure where the peer has closed: its end is gone then, and nothing was owed
/// to it.
void VerbsLink::take_breakage() {
  stream_.readable = true;  // what it said last has arrived: a queue pair breaks only seconds after its other end has
                            // gone
  control_.pump();
  if (failed_) return;
  if (!control_.peer_closed()) {
    fail(ECONNRESET, "its queue pair broke: " + parts_.pair->failure());
    return;
  }
  broken_ = true;
  forget_flights();
}

void VerbsLink::forget_flights() {
  if (flying_ != 0) --activity_->busy;
  flying_ = 0;
}

void VerbsLink::on_ended(std::uint64_t final_position) { events_.on_ended(rx_start_ + final_position); }

void VerbsLink::on_peer_deaf() {
  peer_deaf_ = true;
  events_.on_peer_deaf();
}

void VerbsLink::on_failed(int error) {
  failed_ = true;
  // What has arrived before is its callers', as where they see the card's word themselves.
  if (const Received received = look_at_rx(); is_possible(received)) arrivals_.pass_on(rx_start_ + received.arrived);
  forget_flights();
  events_.on_failed(error);
}

void VerbsLink::fail(int error, const std::string& why) {
  log_warn("the verbs link to " + stream_.peer().host_port() + " failed: " + why);
  on_failed(error);
}

}  // namespace gpusock::proxy::verbs
