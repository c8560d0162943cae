#include "host_proxy/links/p2p/segment_exchange.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/random.hpp"
#include "host_proxy/links/p2p/unix_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>

namespace gpusock::proxy {
namespace {

constexpr std::uint64_t kVisitorTurns = 100'000;
/// An honest visitor sends its ticket as soon as it is connected. SegmentOffers keeps at most this many silent
/// visitors, and evicts the oldest.
constexpr std::size_t kVisitorsMax = 128;

constexpr std::size_t kVisitorsPerStep = 512;

/// The segments that all contexts of this process offer: they share one address space, and so one table.
class LocalOffers {
  struct Offer {
    std::weak_ptr<Segment> segment;
    std::weak_ptr<Segment> on_device;
    DeviceRings taken;
  };

 public:
  void add(const Ticket& ticket, const std::shared_ptr<Segment>& segment, const std::shared_ptr<Segment>& on_device) {
    const std::lock_guard lock(mutex_);
    offers_[ticket] = {segment, on_device, {}};
  }
  void remove(const Ticket& ticket) {
    std::map<Ticket, Offer>::node_type gone;  // gives its segments back after the lock is released
    const std::lock_guard lock(mutex_);
    gone = offers_.extract(ticket);
  }
  std::shared_ptr<Segment> find(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    if (hidden_) return nullptr;
    const auto found = offers_.find(ticket);
    return found == offers_.end() ? nullptr : found->second.segment.lock();
  }
  DeviceRings take_on_device(const Ticket& ticket, SegmentPool& pool) {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(ticket);
    if (hidden_ || found == offers_.end()) return {};
    if (auto segment = found->second.on_device.lock()) found->second.taken = share(std::move(segment), pool);
    return found->second.taken;
  }
  DeviceRings device_rings(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(ticket);
    return found == offers_.end() ? DeviceRings() : found->second.taken;
  }
  void hide() noexcept {
    const std::lock_guard lock(mutex_);
    hidden_ = true;
  }

 private:
  /// Called with the lock held, so that the offering context finds the words of both segments started.
  static DeviceRings share(std::shared_ptr<Segment> offered, SegmentPool& pool) {
    const Platform &here = pool.platform(), &there = offered->platform();
    if (here.is_same_device_as(there)) return {offered, offered, {}};
    const std::string why = "p2p in GPU memory: ";
    if (!here.reaches_device_memory_of(there)) return {nullptr, nullptr, why + here.why_apart_from(there)};
    if (!there.reaches_device_memory_of(here)) return {nullptr, nullptr, why + there.why_apart_from(here)};
    auto own = pool.try_take_between_kernels(offered->ring_bytes(), true);
    if (own == nullptr) return {nullptr, nullptr, why + "no such rings are free (Options::connections_max)"};
    // A position must mean the same in both.
    own->start_words(offered->start());
    offered->start_words(own->start());
    return {std::move(offered), std::move(own), {}};
  }

  std::mutex mutex_;
  bool hidden_ = false;
  std::map<Ticket, Offer> offers_;  // a map: destructors withdraw, which must not allocate
};

LocalOffers& local_offers() {
  static auto* offers = new LocalOffers;
  return *offers;
}

}  // namespace

std::shared_ptr<Segment> find_local_offer(const Ticket& ticket) { return local_offers().find(ticket); }

DeviceRings take_local_device_offer(const Ticket& ticket, SegmentPool& pool) {
  return local_offers().take_on_device(ticket, pool);
}

void hide_local_offers() noexcept { local_offers().hide(); }

SegmentOffers::SegmentOffers(PosixNetwork& network)
    : network_(network),
      name_(to_hex(random_bytes<16>())),
      listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name_, address);
  if (!listener_ || bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener_.get(), 4096) != 0) {
    throw Error(errno, "setting up the Unix socket through which processes of this host share rings");
  }
  visitors_.reserve(kVisitorsMax);  // so that serve() allocates nothing
  heed_visitors(true);
}

SegmentOffers::~SegmentOffers() {
  for (const auto& [ticket, segment] : offers_) local_offers().remove(ticket);
  for (const Visitor& visitor : visitors_) network_.unwatch(visitor.connection.get());
  heed_visitors(false);
}

Ticket SegmentOffers::offer(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Segment>& on_device) {
  const Ticket ticket = random_bytes<16>();
  offers_[ticket] = segment;
  try {
    local_offers().add(ticket, segment, on_device);
  } catch (...) {
    offers_.erase(ticket);
    throw;
  }
  return ticket;
}

DeviceRings SegmentOffers::device_rings(const Ticket& ticket) const { return local_offers().device_rings(ticket); }

void SegmentOffers::withdraw(const Ticket& ticket) {
  local_offers().remove(ticket);
  offers_.erase(ticket);
}

void SegmentOffers::serve() {
  if (ready_) {
    for (std::size_t visitors = 0; visitors < kVisitorsPerStep && accept_visitor(); ++visitors) {
    }  // bounded: a process that connects again and again must not keep the step from others
  }
  std::erase_if(visitors_, [this](Visitor& visitor) {
    const bool leaves = serve(visitor) || --visitor.turns_left == 0;
    if (leaves) network_.unwatch(visitor.connection.get());
    return leaves;
  });
}

/// False if no more can be accepted now.
bool SegmentOffers::accept_visitor() {
  Visitor visitor{Descriptor(uninterrupted(
                      [&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })),
                  kVisitorTurns};
  // If descriptors are short, each step tries again. Waiting visitors must not keep the proxy awake until then.
  const bool stuck = !visitor.connection && errno != EAGAIN;
  heed_visitors(!stuck);
  ready_ = visitor.connection || stuck;
  if (!visitor.connection) return false;
  if (!same_user(visitor.connection.get()) || serve(visitor)) return true;
  if (visitors_.size() >= kVisitorsMax) {
    network_.unwatch(visitors_.front().connection.get());
    visitors_.erase(visitors_.begin());
  }
  network_.watch(visitor.connection.get(), *this);
  visitors_.push_back(std::move(visitor));
  return true;
}

/// Sets whether arriving visitors end the proxy's sleep.
void SegmentOffers::heed_visitors(bool heeds) {
  if (heeds == heeds_) return;
  heeds_ = heeds;
  if (heeds) {
    network_.watch(listener_.get(), *this);
  } else {
    network_.unwatch(listener_.get());
  }
}

/// Serves the visitor if its message has arrived. True if the visitor is done.
bool SegmentOffers::serve(const Visitor& visitor) {
  std::array<Ticket, 2> said;
  ReceivedMessage message = receive_message(visitor.connection.get(), std::as_writable_bytes(std::span(said)));
  if (message.bytes < 0 && message.error == EAGAIN) return false;
  if (message.bytes == sizeof said[0] && !message.descriptor) serve(visitor, said[0]);
  const bool is_lasting = lasting_descriptor_ >= 0 && said[0] == lasting_ticket_;
  if (message.bytes == sizeof said && message.descriptor && is_lasting) {
    Descriptor answer_to(fcntl(visitor.connection.get(), F_DUPFD_CLOEXEC, 3));
    if (answer_to) on_gift_(said[1], std::move(message.descriptor), std::move(answer_to));
  }
  return true;
}

/// Sends the visitor the descriptor that its ticket names.
void SegmentOffers::serve(const Visitor& visitor, const Ticket& ticket) {
  if (lasting_descriptor_ >= 0 && ticket == lasting_ticket_) {
    send_descriptor(visitor.connection.get(), lasting_descriptor_);
    return;
  }
  const auto found = offers_.find(ticket);
  if (found == offers_.end()) return;
  if (const auto segment = found->second.lock(); segment != nullptr && segment->descriptor() >= 0) {
    send_descriptor(visitor.connection.get(), segment->descriptor());
  }
  withdraw(ticket);
}

SegmentFetch::SegmentFetch(PosixNetwork& network, SegmentPool& pool, FullBacklogs& backlogs, const std::string& name,
                           const Ticket& ticket, std::uint64_t ring_bytes, ReadySink& sink)
    : network_(network),
      pool_(pool),
      backlogs_(backlogs),
      sink_(sink),
      name_(name),
      ticket_(ticket),
      ring_bytes_(ring_bytes) {
  segment_ = find_local_offer(ticket);
  if (segment_ != nullptr) {
    state_ = segment_->ring_bytes() == ring_bytes ? State::done : State::failed;
    return;
  }
  connection_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  state_ = connection_ ? connect() : State::failed;
}

SegmentFetch::~SegmentFetch() {
  if (backlog_is_full_) backlogs_.remove(sink_);
  if (connection_) network_.unwatch(connection_.get());
}

/// A Unix socket's connect() succeeds or fails at once. EAGAIN means that the peer's backlog is full. That lasts until
/// the peer's next step, or at most until this connection's handshake has taken too long.
SegmentFetch::State SegmentFetch::connect() {
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name_, address);
  const bool connected = uninterrupted([&] {
                           return ::connect(connection_.get(), reinterpret_cast<sockaddr*>(&address), bytes);
                         }) == 0;
  const bool full = !connected && errno == EAGAIN;
  if (full && !backlog_is_full_) backlogs_.add(sink_);
  if (!full && backlog_is_full_) backlogs_.remove(sink_);
  backlog_is_full_ = full;
  if (full) return State::waiting;
  return connected ? send_ticket() : State::failed;  // failed: the peer is not on this host
}

SegmentFetch::State SegmentFetch::send_ticket() {
  const auto say = [&] {
    return ::send(connection_.get(), ticket_.data(), ticket_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  if (!same_user(connection_.get()) || uninterrupted(say) != static_cast<ssize_t>(ticket_.size())) return State::failed;
  network_.watch(connection_.get(), sink_);
  return State::waiting;
}

SegmentFetch::State SegmentFetch::advance() {
  if (state_ == State::waiting) state_ = backlog_is_full_ ? connect() : receive();
  return state_;
}

SegmentFetch::State SegmentFetch::receive() {
  const int descriptor = receive_descriptor(connection_.get());
  if (descriptor < 0) return errno == EAGAIN ? State::waiting : State::failed;
  segment_ = pool_.map(descriptor, ring_bytes_);
  return segment_ == nullptr ? State::failed : State::done;
}

}  // namespace gpusock::proxy
