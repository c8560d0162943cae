#include "host_proxy/proxy/engine.hpp"

#include "plain_types/clock.hpp"
#include "plain_types/error.hpp"
#include "host_proxy/base/no_thread.hpp"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/base/signals.hpp"
#include "ringbuf/atomics.hpp"

#include <pthread.h>

#include <algorithm>
#include <string>

namespace gpusock::proxy {
namespace {

/// After a caller's step, the thread keeps away from the step for this long.
constexpr std::uint64_t kParkNs = 500'000;
/// Each look takes a processor from a caller: a round trip of 8 us takes 40 then. So the thread keeps away for longer,
/// twice as long each time up to kLongParkNs, as long as callers make kBusySteps in each kParkNs: so many quick steps
/// do what a full one would. If callers stop, what they left waits for the rest of that time, which is less than they
/// have been busy. It looks after kParkedNsMax in any case.
constexpr std::uint64_t kBusySteps = 64;
constexpr std::uint64_t kLongParkNs = 4'000'000;
constexpr std::uint64_t kParkedNsMax = 20'000'000;
/// Without assistants the thread looks again at once for this long before it sleeps.
constexpr std::uint64_t kSpinNs = 50'000;
/// The longest sleep, even if all callers ring. The bound costs little, and a lost ring then costs no more than this.
constexpr std::uint64_t kSleepNs = 1'000'000'000;
/// The interval between looks at a device that cannot ring: at first, and at most.
constexpr std::uint64_t kLookNsMin = 20'000;
constexpr std::uint64_t kLookNsMax = 1'000'000;

}  // namespace

Engine::Engine(Proxy& proxy, PosixNetwork& network, const EngineOptions& options)
    : proxy_(proxy), network_(network), options_(options), park_ns_(kParkNs) {
  const std::vector<int> processors = usable(options_.processors);
  start_thread();
  pthread_setname_np(thread_.native_handle(), "gpusock-proxy");
  keep_on(thread_.native_handle(), processors);
}

void Engine::start_thread() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(error.code().value(), std::string("starting the proxy's thread; ") + remedy_for_no_thread());
  }
}

Engine::~Engine() { stop(); }

void Engine::stop() {
  stopping_.store(true, std::memory_order_release);
  network_.ring();
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  idle_since_ns_ = detail::monotonic_ns();
  while (!stopping_.load(std::memory_order_acquire)) {
    bool moved = false, awaits_answer = false;
    std::uint64_t now = 0;
    {
      const std::lock_guard lock(stepping_);
      now = detail::monotonic_ns();
      moved = step(now, Proxy::Pass::full);
      awaits_answer = proxy_.awaits_answer(now);
    }
    if (options_.observer != nullptr) show(now);
    if (moved) {
      idle_since_ns_ = detail::monotonic_ns();
    } else if (awaits_answer) {
      std::this_thread::yield();  // a thread that sleeps wakes later than the answer comes
    } else {
      rest();
    }
  }
}

/// A step of a thread that holds the lock. True if anything moved: then sleeping callers look.
bool Engine::step(std::uint64_t now, Proxy::Pass pass) {
  const bool moved = proxy_.step(now, pass);
  if (moved) news_.tell();
  return moved;
}

/// Refreshes what observers read, while there are any.
void Engine::show(std::uint64_t now) {
  if (!options_.observer->due(now)) return;
  try {
    {
      const auto lock = suspend();
      options_.observer->collect(proxy_, now, wakeups());
    }
    options_.observer->publish();
  } catch (const std::exception&) {
    return;  // no memory for it: observers see the context later
  }
}

/// Nothing moved: keep away while callers assist, look again where that is cheap, or sleep.
void Engine::rest() {
  const std::uint64_t now = detail::monotonic_ns();
  const std::uint64_t assisted = assisted_at_ns_.load(std::memory_order_relaxed);
  if (now < assisted + kParkNs) {
    park();
  } else if (looks_again_at_once(now)) {
    std::this_thread::yield();
  } else {
    sleep_in_network();
  }
}

void Engine::park() {
  parked_.store(true, std::memory_order_seq_cst);
  for (std::uint64_t parked = 0; parked < kParkedNsMax; parked += park_ns_) {
    const std::uint64_t before = assistants_steps_.load(std::memory_order_relaxed);
    const bool rung = network_.sleep_until_rung(park_ns_);
    const std::uint64_t steps = assistants_steps_.load(std::memory_order_relaxed) - before;
    if (rung || steps < kBusySteps * (park_ns_ / kParkNs) || stopping_.load(std::memory_order_acquire)) {
      park_ns_ = kParkNs;
      break;
    }
    park_ns_ = std::min(2 * park_ns_, kLongParkNs);
  }
  parked_.store(false, std::memory_order_relaxed);
}

bool Engine::looks_again_at_once(std::uint64_t now) const {
  if (options_.spin != nullptr && options_.spin->load(std::memory_order_relaxed)) return true;  // relaxed: a hint
  return !options_.assist && now < idle_since_ns_ + kSpinNs;
}

void Engine::sleep_in_network() {
  bool may_sleep = false;
  std::uint64_t timeout_ns = 0;
  {
    const std::lock_guard lock(stepping_);
    may_sleep = sleeper_.may_sleep([this] { return proxy_.waits_for_credit(); },
                                   [this] { return step(detail::monotonic_ns(), Proxy::Pass::full); });
    timeout_ns = nap_ns(detail::monotonic_ns());
  }
  if (may_sleep && !stopping_.load(std::memory_order_acquire)) {
    network_.sleep(timeout_ns);
    wakeups_.fetch_add(1, std::memory_order_relaxed);
  }
  sleeper_.wake_up();
}

std::uint64_t Engine::nap_ns(std::uint64_t now) {
  const std::uint64_t due = proxy_.next_deadline_ns();
  std::uint64_t until_due = due > now ? due - now : 0;
  std::uint64_t nap = kSleepNs;
  if (!options_.callers_can_wake || proxy_.wants_polling()) {  // the longer nothing has happened, the rarer the looks
    nap = std::clamp((now - idle_since_ns_) / 8, kLookNsMin, kLookNsMax);
  }
  if (options_.observer != nullptr) {
    const std::uint64_t shown = options_.observer->next_due_ns();
    until_due = std::min(until_due, shown > now ? shown - now : 0);
  }
  return std::min(nap, until_due);
}

bool Engine::try_step(std::uint64_t now, std::uint32_t hinted_slot) {
  {
    const std::unique_lock lock(stepping_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    assisted_at_ns_.store(now, std::memory_order_relaxed);
    assistants_steps_.store(assistants_steps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    proxy_.hint(hinted_slot);
    step(now, Proxy::Pass::quick);
  }
  wake_thread_behind_assistant();
  return true;
}

/// An assistant's step may have taken the network's events and left work: the thread must be awake when the
/// callers leave.
void Engine::wake_thread_behind_assistant() {
  if (sleeper_.end_sleep()) network_.ring();
}

std::uint64_t Engine::move_past_ring(std::uint32_t slot, const detail::PastRing& wanted) {
  std::uint64_t moved = 0;
  {
    const std::unique_lock lock(stepping_, std::try_to_lock);
    if (!lock.owns_lock()) return 0;
    const std::uint64_t now = detail::monotonic_ns();
    assisted_at_ns_.store(now, std::memory_order_relaxed);
    moved = proxy_.move_past_ring(slot, wanted, now);
  }
  wake_thread_behind_assistant();
  return moved;
}

void Engine::ring_doorbell(std::uint32_t slot) {
  if (options_.assist && try_step(detail::monotonic_ns(), slot)) return;
  ring_if_asleep(Sleeper::kWantsCommits);
}

void Engine::ring_for_credit() { ring_if_asleep(Sleeper::kWantsCredit); }

void Engine::ring_if_asleep(Sleeper::Asleep least) {
  if (sleeper_.must_be_rung(least)) network_.ring();
}

void Engine::assist(std::uint64_t now, std::uint64_t waited_ns) {
  if (!options_.assist) return;
  if (waited_ns < kAssistNs) {
    try_step(now, ~std::uint32_t{0});
  } else {
    call_thread();
  }
}

bool Engine::keeps_away(std::uint64_t now) const {  // relaxed: a hint
  return parked_.load(std::memory_order_relaxed) || now < assisted_at_ns_.load(std::memory_order_relaxed) + kParkNs;
}

/// From here on the thread makes the steps.
void Engine::call_thread() {
  if (!parked_.load(std::memory_order_relaxed) || !parked_.exchange(false, std::memory_order_relaxed)) return;
  assisted_at_ns_.store(0, std::memory_order_relaxed);  // else it would park again
  network_.ring();
}

void Engine::drain(std::uint64_t linger_ns) {
  stop();
  const std::uint64_t start = detail::monotonic_ns();
  const std::lock_guard lock(stepping_);
  proxy_.step(start, Proxy::Pass::full);  // closes that callers requested last
  proxy_.close_all(start);
  while (proxy_.has_connections() && detail::monotonic_ns() < start + linger_ns) {
    if (!proxy_.step(detail::monotonic_ns(), Proxy::Pass::full)) network_.sleep(1'000'000);
  }
}

ProxyStats Engine::stats() {
  const auto lock = suspend();
  return proxy_.stats();
}

std::vector<SocketInfo> Engine::sockets() {
  const auto lock = suspend();
  return proxy_.sockets(detail::monotonic_ns());
}

}  // namespace gpusock::proxy
