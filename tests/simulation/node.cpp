#include "tests/simulation/node.hpp"

#include "gpusock/cpu/memory_copier.hpp"
#include "gpusock/error.hpp"
#include "tests/support/sim/shortage.hpp"
#include "tests/support/sim/verbs.hpp"
#include "tests/support/sim/window.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

namespace gpusock::sim {
namespace {

constexpr std::uint64_t kAssistNs = 200'000;
constexpr std::uint64_t kLookNsMin = 20'000;
constexpr std::uint64_t kLookNsMax = 1'000'000;
constexpr std::uint64_t kShortLookNs = 1'000;
/// Between what a caller or the network has published and its ringing. Any longer, and rings for something else hide
/// one that is missing.
constexpr std::uint64_t kAboutToRingNs = 200'000;
constexpr std::uint64_t kBackOffNsMin = 200;
constexpr std::uint64_t kBackOffNsMax = 500'000;
constexpr std::uint64_t kCopyNsMax = 100'000;
/// How long the engine's thread may be kept from its processor before it falls asleep.
constexpr std::uint64_t kGapNsMax = 100'000;

/// Copies that end in any order, each not before its time; their bytes move when that is found out, the latest that can
/// be.
class LateCopier final : public proxy::Copier {
 public:
  explicit LateCopier(Schedule& schedule) : schedule_(schedule) {}

  Copy to_host(std::byte* to, const ringbuf::RingSpans& from) override { return start({0, true, to, from}); }
  Copy to_device(const ringbuf::RingSpans& to, const std::byte* from) override {
    return start({0, false, const_cast<std::byte*>(from), to});
  }

  State query(Copy which) override {
    const auto found = copies_.find(which);
    if (schedule_.now_ns() < found->second.end_ns) return State::busy;
    std::byte* host = found->second.host;
    for (const ringbuf::RingSpan& span : {found->second.ring.first, found->second.ring.second}) {
      if (span.bytes == 0) continue;
      std::byte* device = proxy::reveal(span.data);
      std::memcpy(found->second.to_host ? host : device, found->second.to_host ? device : host, span.bytes);
      host += span.bytes;
    }
    copies_.erase(found);
    return State::done;
  }

 private:
  struct Pending {
    std::uint64_t end_ns;
    bool to_host;
    std::byte* host;
    ringbuf::RingSpans ring;  // as the proxy knows it
  };

  Copy start(Pending pending) {
    const Outside outside;
    pending.end_ns = schedule_.now_ns() + schedule_.random().magnitude(100, kCopyNsMax);
    copies_.emplace(++started_, pending);
    return started_;
  }

  Schedule& schedule_;
  std::map<Copy, Pending> copies_;
  Copy started_ = 0;
};

/// The socket table's memory, kept from one run to the next.
class KeptPlatform final : public proxy::Platform {
 public:
  KeptPlatform(Schedule& schedule, const Process& process, bool flushed)
      : schedule_(schedule), process_(process), flushed_(flushed) {}
  void* allocate_shared(std::size_t bytes) override {
    auto& idle = idle_[bytes];
    if (idle.empty()) return ::operator new (bytes, std::align_val_t{4096});
    void* memory = idle.back();
    idle.pop_back();
    return memory;
  }
  void free_shared(void* memory, std::size_t bytes) noexcept override { idle_[bytes].push_back(memory); }
  void attach(void*, std::size_t) override {}
  void detach(void*, std::size_t) noexcept override {}
  bool attaches_any_time() const override { return true; }
  bool callers_can_wake() const override { return true; }

  // As the CPU device's: its memory is in the segments' files, and hidden from the proxy.
  bool device_memory_is_mappable() const override { return true; }
  std::byte* allocate_device(std::size_t) override { throw Error(ENOMEM, "rings are in memory files here"); }
  void free_device(std::byte*) noexcept override {}
  void zero_device(std::byte*, std::size_t) override {}
  std::byte* proxy_address(std::byte* device_memory) const override { return proxy::hide(device_memory); }
  bool reaches_device_memory_of(const Platform&) const override { return true; }
  std::unique_ptr<proxy::Copier> make_copier() override { return std::make_unique<LateCopier>(schedule_); }
  std::unique_ptr<proxy::DeviceWindow> make_window(std::size_t bytes) override {
    auto window = std::make_unique<LateWindow>(schedule_, bytes);
    window_ = window.get();
    return window;
  }
  /// BAR writes arrive.
  void settle() {
    if (window_ != nullptr) window_->settle();
  }
  bool shows_nic_writes() const override { return true; }
  bool orders_nic_writes() const override { return !flushed_; }
  int flush_nic_writes() override {
    if (flushed_) current_nics->flush(process_);
    return 0;
  }

 private:
  Schedule& schedule_;
  const Process& process_;
  bool flushed_;
  LateWindow* window_ = nullptr;  // the table's
  static inline std::map<std::size_t, std::vector<void*>> idle_;
};

Node& node_of(void* self) { return *static_cast<Node*>(self); }

std::uint64_t word(const std::uint64_t* at) { return *at; }

/// Where the bytes end that have arrived, as callers read it.
std::uint64_t end_of(const table::RingSetup& rx) {
  // A BAR write arrives later than the proxy's own word.
  const std::uint64_t* const committed = rx.memory.bias != 0 ? rx.committed : rx.host_committed();
  return rx.memory.committed_of(word(committed), word(rx.consumed));
}

}  // namespace

proxy::LinkResources Node::list_links(Node& node) {
  node.makers_.push_back(std::make_unique<proxy::P2pMaker>(node.network_, node.segments_));
  if (node.options_.has_verbs) {
    current_nics->hold_back(node.process_, node.options_.flushed);
    node.makers_.push_back(
        std::make_unique<proxy::verbs::VerbsMaker>(node.segments_, proxy::verbs::DeviceRings(node.options_.gpudirect)));
  }
  if (node.options_.has_fabric)
    node.makers_.push_back(std::make_unique<proxy::fabric::FabricMaker>(node.network_, node.segments_, ""));
  node.makers_.push_back(std::make_unique<proxy::TcpMaker>(node.segments_));
  return {proxy::pointers_to(node.makers_), node.copies_.get(), node.options_.ring_bytes, node.options_.secret};
}

Node::Node(Schedule& schedule, Process& process, const NodeOptions& options)
    : schedule_(schedule),
      process_(process),
      options_(options),
      platform_(std::make_shared<KeptPlatform>(schedule, process, options.flushed)),
      table_(platform_, options.sockets_max, options.device_words,
             options.device_words ? RingPlacement::device : RingPlacement::host),
      segments_(platform_, {options.ring_bytes, options.ring_bytes}, 0,
                options.device_rings ? RingPlacement::device : RingPlacement::host),
      copies_(options.device_rings
                  ? std::make_unique<proxy::DeviceCopies>(platform_->make_copier(), options.copy_bytes_max)
                  : nullptr),
      resources_(list_links(*this)),
      proxy_(table_, network_, resources_, {options.handshake_timeout_ns}),
      slots_(table_.slots()),
      taken_(1 + table::kListenersMax),
      sets_(table_.sets()),
      set_view_(table_.sets(callers_side(), sets_.data())),
      seen_(table_.slots()) {
  make_net();
  process_.on_news = [this] {
    rung_ = true;
    schedule_.wake(*server_);
  };
  server_ = &schedule_.spawn("proxy of " + process.name, &process, [this] { serve(); });
}

Node::~Node() { process_.on_news = nullptr; }

void Node::make_net() {
  hooks_.self = this;
  hooks_.ring_doorbell = [](void* self, std::uint32_t slot) {
    if (!node_of(self).assist(slot)) node_of(self).ring(proxy::Sleeper::kWantsCommits);
  };
  hooks_.ring_for_credit = [](void* self) { node_of(self).ring(proxy::Sleeper::kWantsCredit); };
  hooks_.move_past_ring = [](void* self, std::uint32_t slot, const detail::PastRing& wanted) {
    return node_of(self).move_past_ring(slot, wanted);
  };
  hooks_.relax = [](void* self, std::uint64_t, std::uint64_t waited_ns, bool proxy_matters) {
    Node& node = node_of(self);
    if (proxy_matters && waited_ns < kAssistNs) node.assist(~std::uint32_t{0});
    node.schedule_.sleep(std::clamp(waited_ns / 2, kBackOffNsMin, kBackOffNsMax));
  };
  detail::Side side{table_.view(callers_side()), slots_.data(), taken_.data(), taken_.data() + 1, &set_view_, &hooks_};
  side.status_turns = options_.status_turns;
  net_ = detail::NetAccess::make(side, side);
}

/// One step, by whichever fiber; false also where another one is in it.
bool Node::step(proxy::Proxy::Pass pass) {
  Fiber* self = schedule_.running();
  stepping_ = true;
  if (self != nullptr) ++self->whole;
  const bool moved = proxy_.step(schedule_.read_clock_ns(), pass);
  if (self != nullptr) --self->whole;
  stepping_ = false;
  return moved;
}

bool Node::assist(std::uint32_t slot) {
  if (!options_.assist || stepping_ || schedule_.now_ns() < stalled_until_ns_) return false;
  if (slot < table_.slots()) proxy_.hint(slot);
  step(proxy::Proxy::Pass::quick);
  if (sleeper_.end_sleep()) wake_server();  // this step may have left work behind
  return true;
}

std::uint64_t Node::move_past_ring(std::uint32_t slot, const detail::PastRing& wanted) {
  if (schedule_.random().one_in(8))
    schedule_.sleep(schedule_.random().magnitude(100, 100'000));  // what its caller saw need not be so any more
  if (!options_.assist || stepping_ || schedule_.now_ns() < stalled_until_ns_) return 0;
  Fiber& self = *schedule_.running();
  stepping_ = true;
  ++self.whole;
  const std::uint64_t moved = proxy_.move_past_ring(slot, wanted, schedule_.read_clock_ns());
  --self.whole;
  stepping_ = false;
  if (sleeper_.end_sleep()) wake_server();
  return moved;
}

void Node::wake_server() {
  rung_ = true;
  schedule_.wake(*server_);
}

void Node::ring(proxy::Sleeper::Asleep least) {
  if (sleeper_.must_be_rung(least)) wake_server();
}

/// Takes what stands for the engine's lock, until its next step is over.
void Node::lock() {
  while (stepping_ || schedule_.now_ns() < stalled_until_ns_)
    schedule_.sleep_until(std::max(stalled_until_ns_, schedule_.now_ns() + 500));
  stepping_ = true;
}

bool Node::may_sleep() {
  lock();
  ++server_->whole;
  const bool may = sleeper_.may_sleep([this] { return proxy_.waits_for_credit(); },
                                      [this] {
                                        const bool moved = step(proxy::Proxy::Pass::full);
                                        stepping_ = true;  // the engine keeps its lock until it sleeps
                                        return moved;
                                      });
  --server_->whole;
  stepping_ = false;
  return may;
}

void Node::serve() {
  for (;;) {
    lock();
    const bool unasked = std::exchange(slept_through_, false) && !rung_ && !process_.epoll->has_news();
    rung_ = false;
    if (unasked) sleeper_.fall_asleep(proxy::Sleeper::kWantsCredit);
    const bool moved = step(proxy::Proxy::Pass::full);
    if (unasked && moved) expect_ring();
    sleeper_.wake_up();
    if (moved) {
      idle_since_ns_ = schedule_.now_ns();
      schedule_.sleep(100 + schedule_.random().below(3'000));
      continue;
    }
    if (options_.assist && schedule_.random().one_in(4))  // callers may make steps before it falls asleep
      schedule_.sleep(schedule_.random().magnitude(100, kGapNsMax));
    if (!may_sleep()) {
      sleeper_.wake_up();
      continue;
    }
    std::uint64_t nap_ns = options_.nap_ns;
    if (options_.tells_lost_rings && nap_ns != ~std::uint64_t{0} && schedule_.random().one_in(8))
      nap_ns = schedule_.random().magnitude(kShortLookNs, nap_ns);
    if (proxy_.wants_polling()) nap_ns = std::clamp((schedule_.now_ns() - idle_since_ns_) / 8, kLookNsMin, kLookNsMax);
    const std::uint64_t now_ns = schedule_.now_ns();
    const std::uint64_t until_ns = std::min(proxy_.next_deadline_ns(),
                                            nap_ns < ~now_ns ? now_ns + nap_ns : ~std::uint64_t{0});
    if (process_.dead || (!rung_ && !process_.epoll->has_news())) {
      slept_through_ = options_.tells_lost_rings && !proxy_.wants_polling();
      schedule_.sleep_until(until_ns);
    }
    sleeper_.wake_up();
  }
}

/// The proxy woke by its own clock and found something to move: somebody is about to ring, or has forgotten to.
void Node::expect_ring() {
  schedule_.sleep(kAboutToRingNs);
  if (!rung_ && problem_.empty()) problem_ = "the proxy slept although there was something to move";
}

void Node::cancel() {
  canceled_ns_ = schedule_.now_ns();
  table_.cancel();
}

void Node::drain(std::uint64_t linger_ns) {
  const std::uint64_t start_ns = schedule_.now_ns();
  while (stepping_) schedule_.sleep(500);
  step(proxy::Proxy::Pass::full);
  proxy_.close_all(start_ns);
  while (proxy_.has_connections() && schedule_.now_ns() < start_ns + linger_ns) {
    while (stepping_) schedule_.sleep(500);
    if (!step(proxy::Proxy::Pass::full)) schedule_.sleep(1'000'000);
  }
}

std::uint64_t Node::unread_bytes(Socket socket) const {
  const table::SocketSetup& setup = table_.view(proxy::SideKind::host).setups[table::slot_of(socket)];
  return end_of(setup.rings.rx) - word(setup.rings.rx.consumed);
}

std::string Node::check_words() {
  if (!problem_.empty()) return problem_;
  const table::TableView view = table_.view(proxy::SideKind::host);
  for (std::uint32_t slot = 0; slot < view.slots; ++slot) {
    const auto status = table::Status::unpack(view.proxy_words[slot].status);
    Seen& seen = seen_[slot];
    const bool open = table::generation_in(slots_[slot].generation_and_users) == status.generation;
    if (status.phase != table::Phase::connected || !open) {
      seen.generation = 0;
      continue;
    }
    const table::SocketSetup& setup = view.setups[slot];
    const std::uint64_t words[] = {word(setup.rings.tx.host_committed()), word(setup.rings.tx.host_consumed()),
                                   end_of(setup.rings.rx), word(setup.rings.rx.host_consumed())};
    if (words[0] - words[1] > setup.rings.tx.memory.capacity) return "more was committed to a tx ring than was granted";
    if (words[2] - words[3] > setup.rings.rx.memory.capacity) return "more arrived in an rx ring than was granted";
    for (int i = 0; i < 4; ++i) {
      if (seen.generation == status.generation && words[i] < seen.words[i]) {
        static constexpr const char* kWords[] = {"sent", "sent and freed", "arrived", "consumed"};
        return "slot " + std::to_string(slot) + ": the position of bytes " + kWords[i] + " went back from " +
               std::to_string(seen.words[i]) + " to " + std::to_string(words[i]);
      }
      seen.words[i] = words[i];
    }
    seen.generation = status.generation;
  }
  return {};
}

std::string Node::check_released() const {
  const table::TableView view = table_.view(proxy::SideKind::host);
  for (std::uint32_t slot = 0; slot < view.slots; ++slot) {
    const auto status = table::Status::unpack(view.proxy_words[slot].status);
    if (status.phase != table::Phase::idle) return "slot " + std::to_string(slot) + " was not given back";
    if (table::users_in(slots_[slot].generation_and_users) != 0)
      return "slot " + std::to_string(slot) + " is still used by a call";
  }
  for (const table::CallerSet& set : sets_) {
    const bool open = (table::generation_in(set.generation_and_users) & 1) != 0;
    if (open || table::users_in(set.generation_and_users) != 0) return "a poll set is still open, or used by a call";
  }
  static_cast<KeptPlatform&>(*platform_).settle();
  if (*table_.view(callers_side()).free_published - taken_[0] != options_.sockets_max)
    return "not all sockets are free again";
  return {};
}

}  // namespace gpusock::sim
