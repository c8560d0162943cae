#include "host_proxy/memory/host_rings_layout.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/random.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

namespace gpusock::proxy {

using namespace host_rings;

/// Gives a slot back with the last pointer to its segment. It is made before the slot is taken: then nothing can fail.
struct HostRings::Lease {
  explicit Lease(std::shared_ptr<HostRings> owner) : rings(std::move(owner)) {}
  ~Lease() {
    if (!holds) return;
    const std::lock_guard lock(rings->mutex_);
    rings->give_back(number, role);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<HostRings> rings;
  std::uint32_t number = 0;
  Role role = kMaker;
  bool holds = false;
};

namespace {

/// Nanoseconds of one clock for all processes of the host.
std::uint64_t host_now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

bool HostRings::is_name(std::string_view name) {
  const auto fits = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '.' || letter == '_' || letter == '-';
  };
  const auto is_like = [text = std::string(name)](const char* word) { return strcasecmp(text.c_str(), word) == 0; };
  const bool misspelt = is_like("off") || (is_like(kAutomatic) && name != kAutomatic);  // as a name, "OFF" would turn
                                                                                        // rings on
  return !name.empty() && name.size() <= 64 && !misspelt && std::all_of(name.begin(), name.end(), fits);
}

std::optional<HostRings::Chosen> HostRings::parse(std::string_view text) {
  constexpr std::string_view kConnections = ",connections=";
  if (text == "off") return Chosen{};
  const std::size_t comma = std::min(text.find(','), text.size());
  const std::string_view name = text.substr(0, comma), rest = text.substr(comma);
  if (!is_name(name)) return {};
  if (rest.empty()) return Chosen{std::string(name), {}};
  if (!rest.starts_with(kConnections)) return {};
  std::uint32_t count = 0;
  const char* const end = rest.data() + rest.size();
  const auto parsed = std::from_chars(rest.data() + kConnections.size(), end, count);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !is_count(count)) return {};
  return Chosen{std::string(name), count};
}

/// Each network namespace counts as one host, as for the Unix sockets that share other rings (segment_exchange.hpp).
std::string HostRings::path_of(const std::string& name) {
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) != 0) space.st_ino = 0;
  return "/dev/shm/gpusock-rings-" + std::to_string(geteuid()) + "-" + std::to_string(space.st_ino) + "-" + name;
}

namespace {

HostRings::Settings valid(HostRings::Settings settings) {
  if (!HostRings::is_name(settings.name) || !HostRings::is_count(settings.connections) ||
      !is_ring_size(settings.ring_bytes)) {
    throw Error(EINVAL, "host rings '" + settings.name + "' for " + std::to_string(settings.connections) +
                            " connections of " + std::to_string(settings.ring_bytes) + " bytes");
  }
  return settings;
}

}  // namespace

HostRings::HostRings(std::shared_ptr<Platform> platform, Settings settings)
    : platform_(std::move(platform)),
      settings_(valid(std::move(settings))),
      file_(path_of(settings_.name), bytes_of_file(settings_.connections, settings_.ring_bytes), new_head(settings_)) {
  static_assert(sizeof(Head) <= kSlotsAt && sizeof(Slot) == kSlotBytes && alignof(Slot) <= kSlotBytes);
  read_head();
  roles_.resize(connections_);
  map();
  for (std::uint32_t i = 0; i < connections_; ++i) {
    segments_.emplace_back(platform_, memory_.get() + front_bytes(connections_) + i * Segment::total_bytes(room_bytes_),
                           room_bytes_);
  }
  arenas_.emplace(platform_, Arenas::File{file_, memory_.get() + members_at(connections_), arenas_lock(connections_),
                                          connections_, room_bytes_});
}

HostRings::~HostRings() = default;

void HostRings::Unmap::operator()(std::byte* memory) const noexcept {
  platform->detach(memory, bytes);
  munmap(memory, bytes);
}

std::vector<std::byte> HostRings::new_head(const Settings& settings) {
  const Head head{Head::kMagic, random_bytes<16>(), settings.ring_bytes, settings.connections};
  std::vector<std::byte> bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

void HostRings::read_head() {
  Head head;
  const bool whole = uninterrupted([&] { return pread(file_.descriptor(), &head, sizeof head, 0); }) == sizeof head;
  if (!whole || !head.is_of(file_.bytes())) {
    throw Error(EPROTO, "reading " + path_of(settings_.name) +
                            ": it is of another version of gpusock; choose another name in GPUSOCK_HOST_RINGS");
  }
  id_ = head.id;
  connections_ = static_cast<std::uint32_t>(head.connections);
  room_bytes_ = head.room_bytes;
  if (connections_ == settings_.connections && room_bytes_ == settings_.ring_bytes) return;
  log_info("host rings '" + settings_.name + "' were made for " + std::to_string(connections_) +
           " connections with rings of " + std::to_string(room_bytes_) + " bytes, by the process that came first");
}

void HostRings::map() {
  void* memory = mmap(nullptr, file_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_.descriptor(), 0);
  if (memory == MAP_FAILED) throw Error(errno, "mapping host rings of " + std::to_string(file_.bytes()) + " bytes");
  try {
    platform_->attach(memory, file_.bytes());
  } catch (...) {
    munmap(memory, file_.bytes());
    throw;
  }
  memory_ = {static_cast<std::byte*>(memory), Unmap{platform_.get(), file_.bytes()}};
}

HostRings::Slot& HostRings::slot(std::uint32_t number) const {
  return *reinterpret_cast<Slot*>(memory_.get() + kSlotsAt + number * kSlotBytes);
}

std::shared_ptr<Segment> HostRings::take(std::uint64_t ring_bytes, SlotLocator& locator) {
  locator.file = id_;
  locator.state = SlotLocator::kTooSmall;
  if (ring_bytes > room_bytes_) return nullptr;
  const Id ticket = random_bytes<16>();
  auto lease = std::make_shared<Lease>(shared_from_this());
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < connections_; ++i) {
    const std::uint32_t number = (next_ + i) % connections_;
    if (!claim(number, ticket)) continue;
    next_ = (number + 1) % connections_;
    locator = {id_, ticket, ring_bytes, number, SlotLocator::kOffered};
    return lend(std::move(lease), number, kMaker, ring_bytes);
  }
  locator.state = SlotLocator::kNoneFree;
  return nullptr;
}

/// Takes this slot and makes it like new, if no process uses it.
bool HostRings::claim(std::uint32_t number, const Id& ticket) {
  if (roles_[number] != 0 || !file_.try_lock(maker_lock(number), 2)) return false;  // both locks, or none
  Slot& its = slot(number);
  const bool rested = has_rested(its);
  if (rested) {
    its = Slot{.ticket = ticket, .maker_uses = 1, .start = Segment::start_after(segments_[number].header(), its.start)};
    segments_[number].clear();
  }
  file_.unlock(rested ? peer_lock(number) : maker_lock(number), rested ? 1 : 2);
  return rested;
}

/// Called by the end that gives a slot back. If the other end has died, the slot's rest begins now, and not when the
/// slot is next asked for.
void HostRings::note_death(Slot& its, std::uint32_t number, Role other) const noexcept {
  const bool uses = (other == kMaker ? its.maker_uses : its.peer_uses) != 0;
  if (!uses || its.rests_since_ns != 0 || (roles_[number] & other) != 0) return;
  if (!file_.is_locked_elsewhere(other == kMaker ? maker_lock(number) : peer_lock(number))) {
    its.rests_since_ns = host_now_ns();
  }
}

/// True if its last users have given it back, or have been dead for long enough.
bool HostRings::has_rested(Slot& its) const {
  if (its.maker_uses == 0 && its.peer_uses == 0) return true;
  const std::uint64_t now_ns = host_now_ns();
  if (its.rests_since_ns == 0 || its.rests_since_ns > now_ns) its.rests_since_ns = now_ns;
  return now_ns - its.rests_since_ns >= settings_.rest_ns;
}

std::uint32_t HostRings::resting() const {
  const std::lock_guard lock(mutex_);
  std::uint32_t count = 0;
  for (std::uint32_t number = 0; number < connections_; ++number) {
    const Slot& its = slot(number);
    const bool was_kept = roles_[number] == 0 && (its.maker_uses != 0 || its.peer_uses != 0);
    if (was_kept && !file_.is_locked_elsewhere(maker_lock(number)) && !file_.is_locked_elsewhere(peer_lock(number))) {
      ++count;
    }
  }
  return count;
}

std::shared_ptr<Segment> HostRings::join(const SlotLocator& locator) {
  if (locator.state != SlotLocator::kOffered || !is_same(locator) || locator.slot >= connections_ ||
      !is_ring_size(locator.ring_bytes) || locator.ring_bytes > room_bytes_) {
    throw Error::with_cause(EPROTO, "the peer offers host rings that are not there");
  }
  auto lease = std::make_shared<Lease>(shared_from_this());
  const std::lock_guard lock(mutex_);
  std::uint8_t& roles = roles_[locator.slot];
  const bool locked = (roles & kPeer) == 0 && file_.try_lock(peer_lock(locator.slot), 1);
  const bool is_maker_there = (roles & kMaker) != 0 || file_.is_locked_elsewhere(maker_lock(locator.slot));
  Slot& its = slot(locator.slot);
  if (!locked || !is_maker_there || its.ticket != locator.ticket) {
    if (locked) file_.unlock(peer_lock(locator.slot), 1);
    throw Error::with_cause(EPROTO, "the peer offers host rings that it does not have");
  }
  its.peer_uses = 1;
  its.joined = 1;
  return lend(std::move(lease), locator.slot, kPeer, locator.ring_bytes);
}

bool HostRings::was_joined(const SlotLocator& locator) const {
  return locator.state == SlotLocator::kOffered && locator.slot < connections_ && slot(locator.slot).joined != 0;
}

std::shared_ptr<Segment> HostRings::on_device(const SlotLocator& locator, const std::shared_ptr<Segment>& common,
                                              const Arenas::Id& whose) const {
  struct OnDevice {
    std::shared_ptr<Segment> common;
    std::shared_ptr<const DeviceArena> arena;
    Segment segment;
  };
  const auto there = arenas_->find(whose, locator.slot);
  const std::uint64_t start = slot(locator.slot).start;
  if (!there || start > Segment::kStartMax) return nullptr;  // too far: a program wrote where it should not
  auto* const header = reinterpret_cast<std::byte*>(&common->header());
  const Segment::OnDevice where{there->rings, there->words, start};
  const auto made = std::shared_ptr<OnDevice>(
      new OnDevice{common, there->arena, Segment(platform_, header, room_bytes_, where)});
  made->segment.limit(locator.ring_bytes);
  return {made, &made->segment};
}

/// The caller has the mutex, and this object has the slot's lock.
std::shared_ptr<Segment> HostRings::lend(std::shared_ptr<Lease> lease, std::uint32_t number, Role role,
                                         std::uint64_t ring_bytes) {
  roles_[number] |= role;
  segments_[number].limit(ring_bytes);
  lease->number = number;
  lease->role = role;
  lease->holds = true;
  return {std::move(lease), &segments_[number]};
}

void HostRings::give_back(std::uint32_t number, Role role) noexcept {
  Slot& its = slot(number);
  (role == kMaker ? its.maker_uses : its.peer_uses) = 0;
  note_death(its, number, role == kMaker ? kPeer : kMaker);
  roles_[number] = static_cast<std::uint8_t>(roles_[number] & ~role);
  file_.unlock(role == kMaker ? maker_lock(number) : peer_lock(number), 1);
}

}  // namespace gpusock::proxy
