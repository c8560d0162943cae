#include "host_proxy/proxy/connection.hpp"

#include "plain_types/error.hpp"
#include "plain_types/clock.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/proxy/listener.hpp"
#include "host_proxy/proxy/proxy.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpusock::proxy {
namespace {

/// How long it takes to shake hands with a peer on the same host: five messages, each of which takes 20 us if both
/// proxies' threads look for them.
constexpr std::uint64_t kHandshakeNs = 200'000;

/// How long a closed connection may go on delivering what was sent before it is reset.
constexpr std::uint64_t kLingerNs = 30'000'000'000;

/// How long one address is tried before the next one is tried beside it (RFC 8305, 5 and 8).
constexpr std::uint64_t kAttemptDelayNs = 250'000'000;

/// If a caller gives up on a silent peer sooner than this, the log does not say why the peer may be silent.
constexpr std::uint64_t kTellSilenceNs = 200'000'000;

/// How many times a connection is looked at within its idle timeout.
constexpr std::uint32_t kIdleLooks = 4;

std::uint64_t load_word(const std::uint64_t* word) {
  return ringbuf::SystemAtomics::Ref<std::uint64_t>(*const_cast<std::uint64_t*>(word))
      .load(ringbuf::kRelaxed);  // relaxed: the sum is only compared
}

/// A connection to a port of this host where no program listens may get that very port as its own from the operating
/// system. Then it is connected to itself (RFC 9293, 3.5, simultaneous open).
bool is_same_address(const Endpoint& one, const Endpoint& other) {
  return one.family == other.family && one.port == other.port && one.scope_id == other.scope_id &&
         std::memcmp(one.address, other.address, sizeof one.address) == 0;
}

}  // namespace

Connection::Connection(Proxy& proxy, std::uint32_t slot, std::unique_ptr<ByteStream> stream, const Endpoint& to,
                       const ConnectAttempts& attempts, std::uint64_t deadline_ns)
    : proxy_(proxy),
      has_slot_(true),
      slot_(slot),
      phase_(Phase::connecting),
      asked_(to),
      attempts_(attempts),
      peer_(attempts.current()),
      stream_(std::move(stream)),
      stream_hint_(stream_.get()),
      deadline_ns_(to.is_plain_tcp() ? detail::kNever : deadline_ns) {
  stream_->sink = this;
}

Connection::Connection(Proxy& proxy, Listener& listener, std::unique_ptr<ByteStream> stream, const Endpoint& asked,
                       const table::SocketOptions& options, std::uint64_t deadline_ns)
    : proxy_(proxy),
      listener_(&listener),
      incoming_(true),
      phase_(Phase::connecting),
      asked_(asked),
      attempts_({}),
      peer_(stream->peer()),
      stream_(std::move(stream)),
      stream_hint_(stream_.get()),
      deadline_ns_(deadline_ns) {
  stream_->sink = this;
  set_options(options);
}

/// Resets a connection that has not delivered all that was sent: its end must not look orderly to the peer.
Connection::~Connection() {
  if (link_ != nullptr && stream_hint_ != nullptr && !link_->finished()) stream_hint_->reset_on_close();
}

void Connection::on_ready() { proxy_.activate(*this); }

bool Connection::step(std::uint64_t now_ns) {
  const Phase before = phase_;
  if (phase_ == Phase::connecting) step_connecting(now_ns);
  if (phase_ == Phase::shaking) step_handshake();
  if (phase_ == Phase::agreed && has_slot_) establish();
  bool moved = phase_ != before;
  if (phase_ == Phase::established) moved |= link_->progress();
  if (phase_ == Phase::established && closing_ && link_->can_destroy()) {
    finish_closing();
    moved = true;
  }
  if (phase_ == Phase::established) maintain_link(now_ns);
  if (phase_ == Phase::established) watch_idleness(now_ns);
  if (now_ns >= deadline_ns_) expire();
  return moved;
}

void Connection::step_connecting(std::uint64_t now_ns) {
  take_older_answer();
  for (int result = check_connected(); result != 0; result = check_connected()) {
    if (result == -EINPROGRESS) return try_next_beside(now_ns);
    if (!try_next_address(-result)) return;
  }
  older_.clear();
  next_attempt_ns_ = detail::kNever;
  if (asked_.is_plain_tcp()) {
    phase_ = Phase::agreed;
    deadline_ns_ = detail::kNever;
  } else {
    start_handshake(now_ns);
  }
}

/// Returns 0, -EINPROGRESS, or why this address did not take the connection, as a negated errno.
int Connection::check_connected() {
  const int result = stream_->connected();
  if (result != 0) return result;
  local_ = stream_->local();
  if (listener_ == nullptr && is_same_address(local_, stream_->peer())) {
    stream_->reset_on_close();  // else the port would be taken for another minute
    return -ECONNREFUSED;
  }
  return 0;
}

/// Called if the address tried last did not take the connection. Closes the stream and begins with the next address,
/// under the same deadline. Callers hear of a failure only after the last address. Returns false if no address is left:
/// then the connection has failed.
bool Connection::try_next_address(int error) {
  attempts_.note_failure(error);
  stream_hint_ = nullptr;
  stream_.reset();  // before the next one, which may need this descriptor
  next_attempt_ns_ = detail::kNever;
  if (auto stream = attempts_.start_next(proxy_.network())) {
    use(std::move(stream), attempts_.current());
  } else if (!older_.empty()) {  // one of those may still answer
    Attempt last = std::move(older_.back());
    older_.pop_back();
    use(std::move(last.stream), last.at);
  } else {
    fail_opening(attempts_.error());
    return false;
  }
  return true;
}

/// Called while the address tried last has not answered. After kAttemptDelayNs the next one is tried beside it: an
/// address that does not answer at all must not use up the caller's time.
void Connection::try_next_beside(std::uint64_t now_ns) {
  if (!attempts_.has_more()) return;
  if (next_attempt_ns_ == detail::kNever) next_attempt_ns_ = detail::later_ns(now_ns, kAttemptDelayNs);
  if (now_ns >= next_attempt_ns_) {
    next_attempt_ns_ = detail::kNever;
    auto stream = attempts_.start_next(proxy_.network());
    if (stream == nullptr) return;
    older_.push_back({std::move(stream_), peer_});
    use(std::move(stream), attempts_.current());
    if (attempts_.has_more()) next_attempt_ns_ = detail::later_ns(now_ns, kAttemptDelayNs);
  }
  if (next_attempt_ns_ != detail::kNever) proxy_.due(next_attempt_ns_);
}

/// Goes on with an address that was tried earlier and has answered now, and forgets those that have failed.
void Connection::take_older_answer() {
  for (std::size_t i = 0; i < older_.size();) {
    const int result = older_[i].stream->connected();
    if (result == 0) {
      Attempt answered = std::move(older_[i]);
      older_.clear();
      use(std::move(answered.stream), answered.at);
    } else if (result == -EINPROGRESS) {
      ++i;
    } else {
      attempts_.note_failure(-result);
      older_.erase(older_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

/// Goes on with this attempt.
void Connection::use(std::unique_ptr<ByteStream> stream, const Endpoint& at) {
  stream_ = std::move(stream);
  stream_hint_ = stream_.get();
  stream_->sink = this;
  local_ = {};
  peer_ = at;
  stream_->set_options(options_);
}

void Connection::start_handshake(std::uint64_t now_ns) {
  handshake_ = listener_ == nullptr
                   ? make_connector_handshake(*stream_, proxy_.links(), asked_, *this, callers_are_kernels())
                   : make_acceptor_handshake(*stream_, proxy_.links(), asked_, *this, callers_are_kernels());
  phase_ = Phase::shaking;
  answers_until_ns_ = detail::later_ns(now_ns, kHandshakeNs);
}

void Connection::step_handshake() {
  const auto state = handshake_->advance();
  if (state == Handshake::State::failed) {
    const int error = handshake_->error();
    if (!tell_mismatch()) {
      // The errno says less than the reason, and the connecting side sees the reason nowhere else.
      const bool warns = !incoming_ && !handshake_->reasons().empty() && proxy_.is_news(handshake_->reasons());
      try_log(warns ? LogLevel::warn : LogLevel::info, [&] {
        return "handshake with " + peer_.host_port() + " failed: " + describe_errno(error) +
               (handshake_->reasons().empty() ? "" : " (" + handshake_->reasons() + ")");
      });
    }
    fail_opening(error);
  } else if (state == Handshake::State::done) {
    link_kind_ = handshake_->kind();
    setup_ = handshake_->take_setup();
    link_reason_ = handshake_->reasons();
    if (!setup_->remark().empty()) link_reason_ += (link_reason_.empty() ? "" : "; ") + setup_->remark();
    if (!link_reason_.empty()) {
      const bool warns = !incoming_ && handshake_->found_no_room() && proxy_.is_news(handshake_->reasons());
      try_log(warns ? LogLevel::warn : LogLevel::info, [&] {
        return peer_.host_port() + " is reached by " + std::string(to_string(link_kind_)) + "; not by " + link_reason_;
      });
    }
    handshake_.reset();
    phase_ = Phase::agreed;
    deadline_ns_ = detail::kNever;
  }
}

/// Logs why the two ends do not fit, if something shows that; false otherwise. A mismatch of this side's own attempt is
/// worth a warning. Of a listener's clients only the first is worth one, as anyone can send anything there.
bool Connection::tell_mismatch() {
  if (handshake_ == nullptr || handshake_->mismatch().empty()) return false;
  const bool warns = !incoming_ || (listener_ != nullptr && handshake_->is_foreign() && listener_->warns_of_mismatch());
  try_log(warns ? LogLevel::warn : LogLevel::info, [&] {
    const std::string at = listener_ != nullptr ? listener_->local_text() : asked_.to_string();
    return (incoming_ ? "listening at " + at + ": " + peer_.host_port() + " came"
                      : "connecting to " + peer_.to_string()) +
           ": " + handshake_->mismatch();
  });
  return true;
}

std::string Connection::opening_reason() const { return handshake_ == nullptr ? "" : handshake_->mismatch(); }

void Connection::give_slot(std::uint32_t slot) {
  has_slot_ = true;
  slot_ = slot;
}

/// True if kernels that have sockets of their own use it. An accepted socket belongs to the caller side that opened
/// the listener.
bool Connection::callers_are_kernels() const {
  return proxy_.slots().opener(listener_ != nullptr ? listener_->slot() : slot_) == SideKind::device;
}

bool Connection::waits_for_rings() const {
  return setup_ == nullptr && !proxy_.links().maker_of(LinkKind::tcp)->has_room(callers_are_kernels());
}

void Connection::establish() {
  ProxySlots& slots = proxy_.slots();
  if (setup_ == nullptr) {
    const LinkRequest request{.acceptor = listener_ != nullptr,
                              .kernels = callers_are_kernels(),
                              .ring_bytes = asked_.ring_bytes,
                              .local = local_,
                              .peer = peer_};
    setup_ = proxy_.links().maker_of(LinkKind::tcp)->start(request, {}, *this);
    if (setup_->advance() != LinkSetup::State::ready) {
      fail_opening(setup_->failure().error);
      return;
    }
  }
  segment_ = setup_->rings().callers;
  peers_segment_ = setup_->rings().peers;
  table::SocketSetup& setup = slots.view().setups[slot_];
  setup.local = local_;
  setup.peer = peer_;
  setup.local.link = setup.peer.link = link_kind_;
  setup.local.type = setup.peer.type = asked_.type;
  setup.local.ring_bytes = setup.peer.ring_bytes = static_cast<std::uint32_t>(segment_->ring_bytes());
  setup.records = asked_.type == SocketType::seqpacket ? 1 : 0;
  setup.options = options_.pack();
  is_kernels_ = callers_are_kernels();
  link_ = establish_link(*setup_, slots, {slot_, is_kernels_}, proxy_.links().copies, std::move(stream_), *this);
  setup_.reset();
  phase_ = Phase::established;
  deadline_ns_ = detail::kNever;
  proxy_.count_established();
  publish();
  try_log(LogLevel::debug, [&] {
    return "connected " + local_.host_port() + " to " + peer_.host_port() + " by " + std::string(to_string(link_kind_));
  });
}

/// Called when the link has delivered all that was sent. A last progress() takes what the peer has said meanwhile.
void Connection::finish_closing() {
  link_->progress();
  phase_ = Phase::over;
}

void Connection::maintain_link(std::uint64_t now_ns) {
  link_due_ns_ = link_->maintain(now_ns);
  if (link_due_ns_ != detail::kNever) proxy_.due(link_due_ns_);
}

/// The sum of the bytes that its callers and its network have moved; on p2p only callers move bytes.
std::uint64_t Connection::bytes_moved() const {
  const table::RingPair& rings = proxy_.slots().view().setups[slot_].rings;
  const Link::Traffic traffic = link_->traffic();
  return load_word(rings.tx.host_committed()) + load_word(rings.tx.host_consumed()) +
         load_word(rings.rx.host_committed()) + load_word(rings.rx.host_consumed()) + traffic.tx_bytes +
         traffic.rx_bytes;
}

/// Fails a connection that has been idle for longer than its caller allows. Connections with the same timeout are
/// looked at together: at multiples of a quarter of it.
void Connection::watch_idleness(std::uint64_t now_ns) {
  if (options_.idle_ms == 0 || closing_ || failed_) {
    idle_due_ns_ = detail::kNever;
    return;
  }
  if (idle_due_ns_ != detail::kNever && now_ns < idle_due_ns_) return;
  const std::uint64_t moved = bytes_moved();
  const bool first = idle_due_ns_ == detail::kNever;
  // The first look may come at any time, so the time up to the next one does not count. Bytes that a later look finds
  // moved have moved within the quarter before it, so that quarter counts.
  quiet_looks_ = first ? 0 : moved != moved_before_ ? 1 : quiet_looks_ + 1;
  moved_before_ = moved;
  if (quiet_looks_ > kIdleLooks) {
    try_log(LogLevel::info, [&] {
      return "reset the connection to " + peer_.host_port() + ": it was idle for " + std::to_string(options_.idle_ms) +
             " ms";
    });
    idle_due_ns_ = detail::kNever;
    give_up(ETIMEDOUT);
    return;
  }
  const std::uint64_t between_ns = std::uint64_t{options_.idle_ms} * 1'000'000u / kIdleLooks;
  idle_due_ns_ = detail::later_ns(now_ns - now_ns % between_ns, between_ns);
  proxy_.due(idle_due_ns_);
}

void Connection::request(std::uint64_t bits, std::uint64_t now_ns) {
  if (phase_ == Phase::established) {
    const bool close = (bits & table::kRequestClose) != 0;
    if ((bits & table::kRequestShutdownRead) != 0) link_->end_receiving();
    // A close with unread bytes resets the connection only on plain TCP, as TCP does. Links between gpusock peers
    // deliver what was sent before the close, whatever is unread.
    if (close && !closing_ && asked_.is_plain_tcp() && link_->refuse_input()) options_.linger_s = 0;
    if ((bits & table::kRequestShutdownWrite) != 0 || close) link_->end_sending();
    if (close) link_->end_receiving();
    if (close && !closing_) this->close(now_ns);
  } else if ((bits & table::kRequestClose) != 0) {
    if (!incoming_ && now_ns - came_ns >= kTellSilenceNs) tell_mismatch();
    closing_ = true;
    phase_ = Phase::over;  // given up before it was open, or broken
  }
  proxy_.activate(*this);
}

/// The caller has closed an established connection: what was sent may still be delivered, for as long as the caller
/// lets it.
void Connection::close(std::uint64_t now_ns) {
  closing_ = true;
  if (options_.linger_s == 0) {
    stream_hint_->reset_on_close();
    phase_ = Phase::over;
    return;
  }
  link_->close();
  closing_since_ns_ = now_ns;
  deadline_ns_ = detail::later_ns(now_ns, linger_ns());
  proxy_.due(deadline_ns_);
}

std::uint64_t Connection::linger_ns() const {
  return options_.linger_s < 0 ? kLingerNs : static_cast<std::uint64_t>(options_.linger_s) * 1'000'000'000u;
}

void Connection::set_options(const table::SocketOptions& options) {
  if (options.idle_ms != options_.idle_ms) idle_due_ns_ = detail::kNever;  // the next step begins anew
  options_ = options;
  if (stream_hint_ != nullptr) stream_hint_->set_options(options);
}

void Connection::orphan(bool accepted) {
  listener_ = nullptr;
  if (accepted) return;
  if (has_slot_) on_failed(ECONNRESET);
  if (stream_hint_ != nullptr) stream_hint_->reset_on_close();
  phase_ = Phase::over;
}

void Connection::expire() {
  deadline_ns_ = detail::kNever;
  if (phase_ == Phase::established) {
    log_info((link_->finished() ? "left " : "reset the connection to ") + peer_.host_port() + ": it did not " +
             (link_->finished() ? "answer" : "take what was sent") + " within " +
             std::to_string(linger_ns() / 1'000'000'000) + " s of closing");
    phase_ = Phase::over;
  } else if (phase_ != Phase::over) {
    if (!tell_mismatch()) {
      try_log(LogLevel::info, [&] { return peer_.host_port() + " did not agree on a link in time"; });
    }
    fail_opening(ETIMEDOUT);
  }
}

void Connection::cut_closing_short() {
  try_log(LogLevel::info, [&] {
    return "reset the connection to " + peer_.host_port() +
           ", which was closed and had not taken all that was sent: a client waits for its slot";
  });
  if (stream_hint_ != nullptr) stream_hint_->reset_on_close();
  phase_ = Phase::over;
}

void Connection::evict() {
  try_log(LogLevel::info,
          [&] { return peer_.host_port() + " has not authenticated itself in time while others wait: disconnected"; });
  fail_opening(ETIMEDOUT);
}

void Connection::give_up(int error) {
  if (phase_ == Phase::broken || phase_ == Phase::over) return;
  if (phase_ != Phase::established) {
    fail_opening(error);
    return;
  }
  if (stream_hint_ != nullptr) stream_hint_->reset_on_close();
  stream_hint_ = nullptr;
  link_.reset();
  deadline_ns_ = link_due_ns_ = idle_due_ns_ = detail::kNever;
  phase_ = closing_ ? Phase::over : Phase::broken;
  error_ = error;
  failed_ = true;
  if (!closing_) publish();
}

void Connection::fail_opening(int error) {
  error_ = error;
  older_.clear();
  next_attempt_ns_ = detail::kNever;
  handshake_.reset();
  setup_.reset();
  stream_hint_ = nullptr;
  stream_.reset();
  deadline_ns_ = detail::kNever;
  phase_ = Phase::over;
  if (has_slot_ && !closing_) proxy_.slots().publish(slot_, table::Phase::failed, error);  // until the caller closes it
}

void Connection::publish() {
  proxy_.slots().publish(slot_, failed_ ? table::Phase::failed : table::Phase::connected, error_, flags_);
}

void Connection::on_ended(std::uint64_t final_position) {
  if (closing_) return;
  proxy_.slots().set_final(slot_, final_position);
  flags_ |= table::kStatusEnded;
  publish();
}

void Connection::on_peer_read_shut_down() {
  if (closing_ || (flags_ & table::kStatusPeerReadShutDown) != 0) return;
  flags_ |= table::kStatusPeerReadShutDown;
  publish();
}

/// The first error is the cause; the others follow from it.
void Connection::note_error(int error) {
  if (error_ != 0) return;
  error_ = error;
  try_log(LogLevel::info,
          [&] { return "the connection to " + peer_.host_port() + " failed: " + describe_errno(error); });
}

void Connection::on_sending_failed(int error) {
  if (closing_) return;
  note_error(error);
  publish();
}

void Connection::on_failed(int error) {
  if (closing_) {
    phase_ = Phase::over;
    return;
  }
  note_error(error);
  failed_ = true;
  publish();
}

}  // namespace gpusock::proxy
