#include "host_proxy/links/one_sided_link.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"

#include <algorithm>
#include <cerrno>

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

/// The most writes that one step starts: a producer that never pauses must not keep the proxy from other connections.
constexpr int kWritesPerStep = 8;

}  // namespace

OneSidedLink::OneSidedLink(std::unique_ptr<OneSidedTransport> transport, std::unique_ptr<ByteStream> stream,
                           const table::RingPair& rings, LinkEvents& events)
    : transport_(std::move(transport)),
      stream_(*stream),
      tx_(rings.tx.proxy_consumer()),
      tx_start_(rings.tx.start),
      rx_(rings.rx),
      events_(events),
      control_(std::move(stream), *this,
               [this](std::uint64_t kind, std::uint64_t value) { return take_notice(kind, value); }) {
  transport_->set_sink(stream_.sink);
  for (const std::uint64_t word : transport_->setup_words()) control_.say(kSetup, word);
}

OneSidedLink::~OneSidedLink() {
  transport_->set_sink(nullptr);
  if (has_drained() && quiet_ && stopped_) transport_->settle();
}

bool OneSidedLink::progress() {
  if (failed_) return false;
  bool moved = transport_->poll();
  moved |= receive();  // first: arrived bytes are valid even if the peer is gone
  if (!failed_) moved |= control_.progress();
  if (!failed_ && control_.peer_closed() && !has_drained())
    fail(EPROTO, "the peer closed the connection without its last notices");
  if (!failed_) moved |= transmit();
  if (!failed_ && !has_drained() && transport_->error() != 0) fail(transport_->error(), transport_->reason());
  if (!failed_ && is_ending() && advance_ending()) {
    control_.progress();
    moved = true;
  }
  return moved;
}

// --- sending

bool OneSidedLink::transmit() {
  const bool moved = give_back();
  unsent_ = 0;
  if (stopped_ || peer_reads_no_more_) return moved;
  int writes = 0;
  while (writes < kWritesPerStep && write_some()) ++writes;
  return moved || writes != 0;
}

/// Writes as much as one write can carry: up to the end of the peer's credit, of its ring, or of this ring.
bool OneSidedLink::write_some() {
  const std::uint64_t ready = tx_.readable();
  if (ready == ringbuf::kRingCorrupt) {
    fail(EPROTO, "its callers committed more than the ring holds");
    return false;
  }
  const std::uint64_t sent = transport_->sent();
  unsent_ = ready - (sent - given_back_);
  if (unsent_ == 0 || !transport_->is_open()) return false;
  const std::uint64_t peer_ring = transport_->peer_ring_bytes();
  const std::uint64_t room = peer_ring - (sent - transport_->peer_consumed());
  const std::uint64_t to_wrap = peer_ring - (sent & (peer_ring - 1));
  const std::uint64_t bytes = std::min({unsent_, room, to_wrap, transport_->write_bytes_max()});
  if (bytes == 0) return false;
  const ringbuf::RingSpan from = tx_.memory().spans(tx_start_ + sent, bytes).first;
  const int result = transport_->write(from.data, from.bytes);
  if (result == 0) {
    unsent_ -= from.bytes;
  } else if (result != -EAGAIN && transport_->error() == 0) {
    fail(ECONNRESET, "the network refused a write: " + describe_errno(-result));
  }
  return result == 0;
}

/// Gives ring space back whose bytes the network reads no more.
bool OneSidedLink::give_back() {
  const std::uint64_t bytes = transport_->completed() - given_back_;
  if (bytes == 0) return false;
  given_back_ += bytes;
  tx_.release(bytes);
  return true;
}

/// True if bytes of this side may not have reached the peer's host: bytes wait for room there, are being written, or
/// were written after the last probe and are not acknowledged.
bool OneSidedLink::waits_for_peer() {
  if (failed_ || closed_said_) return false;
  if (!transport_->all_complete()) return true;
  if (stopped_ || peer_reads_no_more_) return false;  // only notices on the control channel are left
  const std::uint64_t sent = transport_->sent();
  return tx_.readable() != sent - given_back_ || (sent != probed_ && transport_->peer_consumed() != sent);
}

std::uint64_t OneSidedLink::maintain(std::uint64_t now_ns) {
  if (probe_.is_due(now_ns, waits_for_peer(), transport_->credits_arrived())) {
    control_.probe();
    probed_ = transport_->sent();
  }
  return probe_.due_ns();
}

void OneSidedLink::end_sending() {
  if (end_wanted_) return;
  end_wanted_ = true;
  const std::uint64_t unsent = tx_.readable();
  if (unsent == ringbuf::kRingCorrupt) {
    fail(EPROTO, "its callers committed more than the ring holds");
  } else {
    control_.say_ended(given_back_ + unsent);
  }
}

/// True if this side will send nothing more. If the peer reads no more, the bytes left in the ring are not sent.
bool OneSidedLink::sending_is_over() {
  const bool over = peer_reads_no_more_ || (end_wanted_ && tx_.readable() == 0);  // bytes being sent are still in it
  return over && transport_->is_open() && transport_->all_complete();
}

// --- receiving

bool OneSidedLink::receive() {
  const std::uint64_t credited = transport_->credited();
  const std::uint64_t read_to = Ref(*rx_.consumed).load(ringbuf::kAcquire);  // P2, pairs with C2
  std::uint64_t consumed = discards_ ? credited : read_to - rx_.start;
  // Read this after `consumed`: callers may consume bytes as soon as a NIC has committed them.
  const std::uint64_t arrived = transport_->arrived();
  const std::uint64_t lead = consumed - arrived;
  callers_lead_ = transport_->callers_may_lead() && lead != 0 && lead <= rx_.memory.capacity;
  if (callers_lead_) consumed = arrived;  // the rest counts once it has arrived
  if (!is_possible(arrived, consumed)) {
    fail(EPROTO, "the peer moved its position in the ring to an invalid value: " + std::to_string(arrived) + "; " +
                     std::to_string(arrived_) + " bytes had arrived and " + std::to_string(credited) +
                     " were acknowledged");
    return false;
  }
  const bool moved = arrived != arrived_ && pass_on(arrived);
  const bool credit_went = !failed_ && return_credit(consumed);
  return moved || (credit_went && transport_->is_silent());  // if it is not silent, events report the rest
}

/// True if the peer has written no more than it was granted, and no more than it has announced.
bool OneSidedLink::is_possible(std::uint64_t arrived, std::uint64_t consumed) const {
  const std::uint64_t room = rx_.memory.capacity;
  return arrived - transport_->credited() <= room && arrived - consumed <= room && arrived >= arrived_ &&
         arrived <= peer_final_;
}

/// Passes arrived bytes on to callers. True if the link had to commit them.
bool OneSidedLink::pass_on(std::uint64_t arrived) {
  const bool commits = !transport_->commits() && !discards_;
  if (commits) {
    if (const int error = transport_->make_visible(); error != 0) {
      fail(-error, "what has arrived could not be made visible to callers");
      return false;
    }
    Ref(*rx_.committed).store(rx_.start + arrived, ringbuf::kRelease);  // P1, pairs with C1
    if (rx_.bar_word != nullptr) ringbuf::bar_write(rx_.bar_word, rx_.start + arrived);
  }
  arrived_ = arrived;
  tell_end();
  return commits;
}

/// Reports the end to callers once all bytes before it have arrived: callers may reject an end beyond their ring.
void OneSidedLink::tell_end() {
  if (arrived_ == peer_final_) events_.on_ended(rx_.start + peer_final_);
}

/// Reports consumed bytes to the peer if they are worth a write, or if the peer may be waiting for just these. True if
/// a write has started.
bool OneSidedLink::return_credit(std::uint64_t consumed) {
  const std::uint64_t credited = transport_->credited(), ring = rx_.memory.capacity;
  const bool over = quiet_ || peer_stopped_ != kUnsaid;
  uncredited_ = over ? 0 : consumed - credited;
  if (over) return false;
  const bool peer_waits = arrived_ - credited == ring;
  const bool due = transport_->is_credit_due(uncredited_);
  if (!due && uncredited_ < ring / 4 && !(peer_waits && uncredited_ != 0)) return false;
  const int result = transport_->send_credit(consumed);
  if (result == 0) {
    uncredited_ = 0;
  } else if (result != -EAGAIN && transport_->error() == 0) {
    fail(ECONNRESET, "the network refused to write credit: " + describe_errno(-result));
  }
  return result == 0;
}

void OneSidedLink::end_receiving() {
  discards_ = true;
  control_.say_read_shut_down();
}

/// If no event reports what the peer writes, the peer may use up its credit while the proxy sleeps. Callers must then
/// ring when they consume, however much has arrived so far.
bool OneSidedLink::waits_for_credit() const {
  const std::uint64_t granted = transport_->credited() + rx_.memory.capacity - arrived_;
  return !failed_ && !discards_ && peer_stopped_ == kUnsaid &&
         (transport_->is_silent() || granted < rx_.memory.capacity / 2);
}

bool OneSidedLink::watches_memory() const {
  if (failed_ || !transport_->is_silent()) return false;
  const bool for_bytes = !quiet_ && (!transport_->commits() || peer_stopped_ != kUnsaid);
  const bool for_credit = unsent_ != 0 || (peer_quiet_ != kUnsaid && !drained_);
  return for_bytes || for_credit || uncredited_ != 0 || callers_lead_;
}

// --- ending

bool OneSidedLink::advance_ending() {
  bool said = false;
  if (!stopped_ && sending_is_over()) {
    said = stopped_ = true;
    control_.say(kStopped, transport_->sent());
  }
  if (!quiet_ && peer_stopped_ == arrived_ && !transport_->is_credit_under_way()) {
    if (!discards_ && peer_final_ != arrived_) {
      fail(EPROTO, "the peer ended its stream after fewer bytes than it had announced");
      return true;
    }
    said = quiet_ = true;
    control_.say(kQuiet, transport_->credits_sent());
  }
  if (!drained_ && stopped_ && peer_quiet_ == transport_->credits_arrived()) {
    said = drained_ = true;
    control_.say(kDrained, 0);
  }
  if (!closed_said_ && closing_ && stopped_ && quiet_ && has_drained()) {
    said = closed_said_ = true;
    control_.say_closed();
  }
  return said;
}

bool OneSidedLink::take_notice(std::uint64_t kind, std::uint64_t value) {
  switch (kind) {
    case kSetup:
      return take_word(value);
    case kStopped:
      if (peer_stopped_ != kUnsaid || value < arrived_ || value > transport_->credited() + rx_.memory.capacity)
        return false;
      peer_stopped_ = value;
      return true;
    case kQuiet:
      if (peer_quiet_ != kUnsaid || value == kUnsaid || !stopped_ || value < transport_->credits_arrived())
        return false;
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

bool OneSidedLink::take_word(std::uint64_t word) {
  if (transport_->is_open()) return false;
  const int error = transport_->take_word(word);
  if (error != 0 && error != EPROTO) fail(error, {});  // the peer has done nothing wrong
  return error != EPROTO;
}

void OneSidedLink::on_ended(std::uint64_t final_position) {
  if (final_position < arrived_) {
    fail(EPROTO, "the peer announced the end of its stream before bytes that it has sent");
    return;
  }
  peer_final_ = final_position;
  tell_end();
}

void OneSidedLink::on_peer_read_shut_down() {
  peer_reads_no_more_ = true;
  events_.on_peer_read_shut_down();
}

/// Callers still receive the bytes that arrived before the failure.
void OneSidedLink::on_failed(int error) {
  if (failed_) return;
  failed_ = true;
  const std::uint64_t arrived = transport_->arrived();
  if (arrived != arrived_ && is_possible(arrived, transport_->credited())) pass_on(arrived);
  transport_->abandon();
  events_.on_failed(error);
}

void OneSidedLink::fail(int error, const std::string& why) {
  if (failed_) return;
  try_log(LogLevel::warn, [&] {
    return "the " + transport_->name() + " connection to " + stream_.peer().host_port() +
           " failed: " + (why.empty() ? describe_errno(error) : why);
  });
  stream_.reset_on_close();  // the peer must not take it for an orderly end
  on_failed(error);
}

}  // namespace gpusock::proxy
