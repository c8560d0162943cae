#include "host_proxy/links/fabric/fabric_link.hpp"

#include "host_proxy/base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy::fabric {
namespace {

constexpr std::size_t kGrantWords = sizeof(Grant) / sizeof(std::uint64_t);
static_assert(sizeof(Grant) % sizeof(std::uint64_t) == 0);
/// Credit is sent at the latest when so many chunks were taken since.
constexpr std::uint64_t kCreditChunks = 8;
/// Bytes that one pump starts to send at most: a producer that never pauses must not keep the step from the others.
constexpr int kChunksPerPump = 8;

}  // namespace

FabricLink::FabricLink(std::unique_ptr<FabricChannel> channel, bool says_grant, std::unique_ptr<ByteStream> stream,
                       ringbuf::ByteConsumer<> tx, ringbuf::ByteProducer<> rx, LinkEvents& events)
    : channel_(std::move(channel)),
      tx_(tx),
      rx_(rx),
      events_(events),
      tx_start_(tx.position()),
      rx_start_(rx.position()),
      control_(std::move(stream), *this, this),
      rx_capacity_(rx.memory().capacity) {
  if (!says_grant) return;
  std::uint64_t words[kGrantWords];
  const Grant grant = channel_->grant();
  std::memcpy(words, &grant, sizeof grant);
  for (const std::uint64_t word : words) control_.say(kWord, word);
}

FabricLink::~FabricLink() {
  channel_->set_sink(nullptr);
  if (drained_ && peer_drained_ && quiet_ && stopped_) channel_->settle();
}

bool FabricLink::pump() {
  if (failed_) return false;
  bool moved = channel_->take_news();
  moved |= deliver();  // first: what has arrived is there, though the peer may be gone
  moved |= control_.pump();
  if (!failed_ && control_.peer_closed() && !(drained_ && peer_drained_)) fail(EPROTO);
  if (!failed_) moved |= transmit();
  if (!failed_ && channel_->error() != 0) fail(channel_->error());
  if (!failed_ && say_where_it_stands()) {
    control_.pump();
    moved = true;
  }
  return moved;
}

// --- sending

bool FabricLink::transmit() {
  bool moved = give_back();
  if (stopped_ || peer_deaf_) return moved;
  for (int chunks = 0; chunks < kChunksPerPump && channel_->can_send(); ++chunks) {
    const std::uint64_t ready = tx_.readable();
    if (ready == ringbuf::kRingCorrupt) {
      fail(EPROTO);
      return moved;
    }
    if (!send_chunk(ready - (sent_ - given_back_))) break;
    moved = true;
  }
  return moved;
}

/// Sends what can go at once of `unsent` bytes: to the end of what the peer granted, of its ring, or of this one.
bool FabricLink::send_chunk(std::uint64_t unsent) {
  const std::uint64_t peer_ring = channel_->peer_ring_bytes();
  const std::uint64_t room = channel_->consumed_by_peer() + peer_ring - sent_;
  const std::uint64_t index = sent_ & (peer_ring - 1);
  const std::uint64_t bytes = std::min({unsent, room, kChunkBytesMax, peer_ring - index});
  if (bytes == 0) return false;
  const ringbuf::RingSpan from = tx_.memory().spans(tx_start_ + sent_, bytes).first;
  const int result = channel_->send(from.data, from.bytes, index);
  if (result == 0) {
    sent_ += from.bytes;
  } else if (result != -EAGAIN) {
    log_warn("the fabric refused to write: " + std::string(strerror(-result)));
    fail(ECONNRESET);
  }
  return result == 0;
}

/// Frees ring space whose bytes the fabric reads no more.
bool FabricLink::give_back() {
  bool moved = false;
  while (const std::uint64_t bytes = channel_->give_back()) {
    tx_.release(bytes);
    given_back_ += bytes;
    moved = true;
  }
  return moved;
}

/// True while bytes of this side may not have reached the peer's host: some wait for room there, are being written, or
/// were written after the last probe and are not acknowledged.
bool FabricLink::waits_for_peer() {
  if (failed_ || closed_said_) return false;
  if (!channel_->all_complete()) return true;
  if (stopped_ || peer_deaf_) return false;  // what is left is said on the control channel
  return tx_.readable() != sent_ - given_back_ || (sent_ != probed_ && channel_->consumed_by_peer() != sent_);
}

std::uint64_t FabricLink::tend(std::uint64_t now_ns) {
  if (probe_.is_due(now_ns, waits_for_peer(), channel_->credits_arrived())) {
    control_.probe();
    probed_ = sent_;
  }
  return probe_.due_ns();
}

void FabricLink::end_sending() {
  if (end_wanted_) return;
  end_wanted_ = true;
  const std::uint64_t unsent = tx_.readable();
  if (unsent == ringbuf::kRingCorrupt) {
    fail(EPROTO);
  } else {
    control_.say_ended(tx_.position() + unsent - tx_start_);
  }
}

/// Is everything sent that ever will be. Where the peer reads no more, what is left in the ring is nobody's.
bool FabricLink::sending_is_over() {
  const bool over = peer_deaf_ || (end_wanted_ && tx_.readable() == 0);  // what is being sent is still in the ring
  return over && channel_->granted() && channel_->all_complete();
}

// --- receiving

bool FabricLink::deliver() {
  bool moved = false;
  while (const std::uint64_t bytes = channel_->next_chunk()) {
    if (!take_chunk(bytes)) return moved;
    moved = true;
  }
  credit();  // moves nothing: who may be waiting for it is the peer, and it is told when this side looks for another
             // reason, too
  return moved;
}

bool FabricLink::take_chunk(std::uint64_t bytes) {
  const std::uint64_t granted = channel_->credited().consumed + rx_capacity_ - arrived_;
  const std::uint64_t to_wrap = rx_capacity_ - (arrived_ & (rx_capacity_ - 1));
  if (bytes > granted || bytes > to_wrap || (peer_final_ != kUnsaid && bytes > peer_final_ - arrived_)) {
    channel_->fail(EPROTO, "the peer wrote " + std::to_string(bytes) + " bytes where there was room for " +
                               std::to_string(std::min(granted, to_wrap)));
    return false;
  }
  channel_->take_chunk();
  arrived_ += bytes;
  if (!discard_) rx_.commit(bytes);
  tell_end();
  return true;
}

/// Bytes of the connection that this side's callers have taken out of the ring.
std::uint64_t FabricLink::consumed() {
  if (discard_) return channel_->credited().consumed;  // the peer is told that it need not go on
  const std::uint64_t room = rx_.writable();
  if (room == ringbuf::kRingCorrupt) {
    fail(EPROTO);
    return channel_->credited().consumed;
  }
  return arrived_ - (rx_capacity_ - room);
}

/// Tells the peer of space and chunks when it is worth it, or when it may be waiting for just that.
void FabricLink::credit() {
  if (!channel_->granted() || channel_->credit_busy() || quiet_ || peer_stopped_ != kUnsaid) return;
  const Credit& told = channel_->credited();
  const std::uint64_t now = consumed();
  const std::uint64_t chunks = channel_->chunks_taken() - told.chunks;
  const bool waiting = arrived_ == told.consumed + rx_capacity_;
  const bool space = now - told.consumed >= rx_capacity_ / 4 || (waiting && now != told.consumed);
  if (failed_ || (!space && chunks < kCreditChunks)) return;
  const int result = channel_->send_credit(now);
  if (result != 0 && result != -EAGAIN) {
    log_warn("the fabric refused to write: " + std::string(strerror(-result)));
    fail(ECONNRESET);
  }
}

void FabricLink::end_receiving() {
  discard_ = true;
  control_.say_deaf();
}

bool FabricLink::waits_for_credit() const {
  const std::uint64_t granted = channel_->credited().consumed + rx_capacity_ - arrived_;
  return !failed_ && !discard_ && peer_stopped_ == kUnsaid && granted < rx_capacity_ / 2;
}

// --- ending

bool FabricLink::say_where_it_stands() {
  const bool before[] = {stopped_, quiet_, drained_, closed_said_};
  if (!stopped_ && sending_is_over()) {
    stopped_ = true;
    control_.say(kStopped, channel_->chunks_sent());
  }
  if (!quiet_ && peer_stopped_ == channel_->chunks_taken() && !channel_->credit_busy()) {
    if (!discard_ && peer_final_ != arrived_) {
      channel_->fail(EPROTO, "the peer sent less than it had said");
      fail(EPROTO);
      return true;
    }
    quiet_ = true;
    control_.say(kQuiet, channel_->credits_sent());
  }
  if (!drained_ && stopped_ && peer_quiet_ == channel_->credits_arrived()) {
    drained_ = true;
    control_.say(kDrained, 0);
  }
  if (!closed_said_ && closing_ && stopped_ && quiet_ && drained_ && peer_drained_) {
    closed_said_ = true;
    control_.say_closed();
  }
  const bool after[] = {stopped_, quiet_, drained_, closed_said_};
  return !std::equal(std::begin(before), std::end(before), std::begin(after));
}

bool FabricLink::on_notice(std::uint64_t kind, std::uint64_t value) {
  switch (kind) {
    case kWord:
      return take_word(value);
    case kStopped:
      if (peer_stopped_ != kUnsaid || value == kUnsaid || value < channel_->chunks_taken() ||
          value > channel_->credited().chunks + kChunksMax) {
        return false;
      }
      peer_stopped_ = value;
      return true;
    case kQuiet:
      if (peer_quiet_ != kUnsaid || value == kUnsaid || !stopped_ || value < channel_->credits_arrived()) return false;
      peer_quiet_ = value;
      return true;
    case kDrained:
      if (peer_drained_ || !quiet_) return false;
      peer_drained_ = true;
      return true;
    default:
      return false;
  }
}

bool FabricLink::take_word(std::uint64_t word) {
  if (channel_->granted() || words_heard_ == kGrantWords) return false;
  std::memcpy(reinterpret_cast<std::byte*>(&heard_) + sizeof word * words_heard_, &word, sizeof word);
  if (++words_heard_ < kGrantWords) return true;
  const int error = channel_->take_grant(heard_);
  if (error == ENOMEM) channel_->fail(error, {});  // the peer has done nothing wrong
  return error != EPROTO;
}

void FabricLink::on_ended(std::uint64_t final_position) {
  if (final_position < arrived_) {
    channel_->fail(EPROTO, "the peer's end lies before what it has sent");
    return;
  }
  peer_final_ = final_position;
  tell_end();
}

/// Callers hear of the end once what comes before it is there: they may take an end beyond their ring for a lie.
void FabricLink::tell_end() {
  if (arrived_ == peer_final_) events_.on_ended(rx_start_ + peer_final_);
}

void FabricLink::on_peer_deaf() {
  peer_deaf_ = true;
  events_.on_peer_deaf();
}

void FabricLink::on_failed(int error) { fail(error); }

void FabricLink::fail(int error) {
  if (failed_) return;
  failed_ = true;
  events_.on_failed(error);
}

}  // namespace gpusock::proxy::fabric
