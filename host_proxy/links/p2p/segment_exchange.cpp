#include "host_proxy/links/p2p/segment_exchange.hpp"

#include "gpusock/error.hpp"
#include "host_proxy/base/random.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace gpusock::proxy {
namespace {

constexpr std::uint64_t kVisitorTurns = 100'000;
/// An honest visitor sends its ticket as soon as it is connected. At most this many silent ones are kept; then the
/// oldest is evicted.
constexpr std::size_t kVisitorsMax = 128;

constexpr std::size_t kVisitorsPerStep = 512;

/// Segments offered by any context of this process: an address space has one such table by nature.
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
    std::map<Ticket, Offer>::node_type gone;  // it gives its segments back after the lock is free
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
  /// Under the lock, so that whoever offers finds both segments' words started.
  static DeviceRings share(std::shared_ptr<Segment> offered, SegmentPool& pool) {
    const Platform &here = pool.platform(), &there = offered->platform();
    if (here.is_same_device_as(there)) return {offered, offered, {}};
    const std::string why = "p2p in GPU memory: ";
    if (!here.reaches_device_memory_of(there)) return {nullptr, nullptr, why + here.why_apart_from(there)};
    if (!there.reaches_device_memory_of(here)) return {nullptr, nullptr, why + there.why_apart_from(here)};
    auto own = pool.try_take_between_kernels(offered->ring_bytes(), true);
    if (own == nullptr) return {nullptr, nullptr, why + "no such rings are free (Options::connections_max)"};
    // A position means the same in both.
    own->start_words(offered->start());
    offered->start_words(own->start());
    return {std::move(offered), std::move(own), {}};
  }

  std::mutex mutex_;
  bool hidden_ = false;
  std::map<Ticket, Offer> offers_;  // withdrawing, which destructors do, allocates nothing
};

LocalOffers& local_offers() {
  static auto* offers = new LocalOffers;
  return *offers;
}

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

bool same_user(int connection) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 && credentials.uid == geteuid();
}

/// A message of one byte with room for one descriptor beside it.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 1;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool send_descriptor(int connection, int descriptor) {
  DescriptorMessage out;
  cmsghdr* header = CMSG_FIRSTHDR(&out.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return uninterrupted([&] { return sendmsg(connection, &out.message, MSG_DONTWAIT | MSG_NOSIGNAL); }) == 1;
}

/// Receives without waiting, and receives again after a 0, which need not mean the end. Linux looks for a message and
/// then, apart from that, whether the peer has closed (__unix_dgram_recvmsg in net/unix/af_unix.c). Where the peer
/// sends and closes between the two looks, the call gives 0 although a message is there. Nothing is sent after the
/// close, so the second 0 is the end.
template <class Receive>
ssize_t receive_or_end(Receive receive) {
  const ssize_t bytes = uninterrupted(receive);
  return bytes == 0 ? uninterrupted(receive) : bytes;
}

/// A descriptor that was sent, -1 with errno EAGAIN while there is none, or -1.
int receive_descriptor(int connection) {
  std::optional<DescriptorMessage> message;
  const ssize_t bytes = receive_or_end(
      [&] { return recvmsg(connection, &message.emplace().message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (bytes < 0) return -1;
  DescriptorMessage& in = *message;
  const cmsghdr* header = CMSG_FIRSTHDR(&in.message);
  int descriptors[2] = {-1, -1};  // the padding of one has room for a second, which nobody honest sends
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptors, CMSG_DATA(header),
                std::min<std::size_t>(header->cmsg_len - CMSG_LEN(0), sizeof descriptors));
  }
  if (descriptors[1] >= 0) ::close(descriptors[1]);
  if (bytes == 1 && descriptors[0] >= 0 && descriptors[1] < 0) return descriptors[0];
  if (descriptors[0] >= 0) ::close(descriptors[0]);
  errno = EPROTO;
  return -1;
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
  visitors_.reserve(kVisitorsMax);  // serve() allocates nothing
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
    }  // bounded: a process that connects without end must not keep the step from others
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
  // Out of descriptors: looked at again at each step. Visitors that wait must not keep the proxy awake until then.
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

/// Sets whether visitors that come end the proxy's sleep.
void SegmentOffers::heed_visitors(bool heeds) {
  if (heeds == heeds_) return;
  heeds_ = heeds;
  if (heeds) {
    network_.watch(listener_.get(), *this);
  } else {
    network_.unwatch(listener_.get());
  }
}

/// Gives the visitor the segment of its ticket, if it has sent the ticket. True if the visitor may go.
bool SegmentOffers::serve(const Visitor& visitor) {
  Ticket ticket;
  const ssize_t bytes = receive_or_end(
      [&] { return ::recv(visitor.connection.get(), ticket.data(), ticket.size(), MSG_DONTWAIT); });
  if (bytes < 0 && errno == EAGAIN) return false;
  if (bytes != static_cast<ssize_t>(ticket.size())) return true;
  const auto found = offers_.find(ticket);
  if (found == offers_.end()) return true;
  if (const auto segment = found->second.lock(); segment != nullptr && segment->descriptor() >= 0) {
    send_descriptor(visitor.connection.get(), segment->descriptor());
  }
  withdraw(ticket);
  return true;
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

/// A Unix socket's connect takes effect at once, or fails. EAGAIN: the peer has not yet accepted as many as its backlog
/// holds. That lasts until the peer's next step, or at most until this connection's handshake has taken too long.
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
