#include "host_proxy/links/fabric/idle_endpoints.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

namespace gpusock::proxy::fabric {

/// The endpoints of contexts that are gone. Nothing closes those left when the process ends; the operating system does.
struct IdleEndpoints::Orphans {
  std::mutex mutex;
  std::atomic<bool> any = false;
  IdleEndpoints peers;
};

IdleEndpoints::Orphans& IdleEndpoints::orphans() {
  alignas(Orphans) static std::byte memory[sizeof(Orphans)];
  static auto* only = new (memory) Orphans;  // no allocation: destructors and every step call this
  return *only;
}

IdleEndpoints::~IdleEndpoints() {
  std::erase_if(kept_, [](const Kept& each) { return !each.peer->idle(); });
  if (kept_.empty()) return;
  // Nothing else uses their domains any more. libfabric allows one thread at a time in a domain.
  const std::lock_guard lock(orphans().mutex);
  try {
    orphans().peers.kept_.reserve(orphans().peers.kept_.size() + kept_.size());
  } catch (const std::exception&) {
    return;  // there is no memory to keep them longer
  }
  for (Kept& each : kept_) {
    each.peer->revoke();
    const std::uint64_t made = each.peer->connections_made();
    orphans().peers.kept_.push_back({std::move(each.peer), made, 0});
  }
  orphans().any = true;
}

void IdleEndpoints::keep(std::shared_ptr<PeerEndpoint> peer) { kept_.push_back({std::move(peer), 0, 0}); }

void IdleEndpoints::maintain(std::uint64_t now_ns) {
  if (!kept_.empty()) {
    note_idle(now_ns);
    let_go(now_ns);
  }
  if (this == &orphans().peers || !orphans().any.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(orphans().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread does this now
  for (const Kept& each : orphans().peers.kept_) each.peer->poll();
  orphans().peers.maintain(now_ns);
  orphans().any = orphans().peers.size() != 0;
}

void IdleEndpoints::note_idle(std::uint64_t now_ns) {
  for (Kept& each : kept_) {
    const bool used = each.connections_made != each.peer->connections_made() || !each.peer->idle();
    each.connections_made = each.peer->connections_made();
    if (used) {
      each.idle_since_ns = 0;
    } else if (each.idle_since_ns == 0) {
      each.idle_since_ns = now_ns;
    }
  }
}

void IdleEndpoints::let_go(std::uint64_t now_ns) {
  std::erase_if(kept_,
                [&](const Kept& each) { return each.idle_since_ns != 0 && now_ns - each.idle_since_ns >= kIdleNs; });
  const auto is_idle = [](const Kept& each) { return each.idle_since_ns != 0; };
  const auto longest_first = [&](const Kept& a, const Kept& b) {
    return is_idle(a) != is_idle(b) ? is_idle(a) : a.idle_since_ns < b.idle_since_ns;
  };
  auto idle = static_cast<std::size_t>(std::count_if(kept_.begin(), kept_.end(), is_idle));
  for (; idle > kIdleMax; --idle) kept_.erase(std::min_element(kept_.begin(), kept_.end(), longest_first));
}

}  // namespace gpusock::proxy::fabric
