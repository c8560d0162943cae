#include "gpusock/context/device_holdings.hpp"

#include "gpusock/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <pthread.h>

#include <cstddef>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace gpusock::detail {

proxy::RingSizes ring_sizes(const Options& options, const proxy::Platform& platform) {
  if (options.ring_bytes != 0) return {options.ring_bytes, options.ring_bytes};
  return proxy::default_ring_sizes(!platform.attaches_any_time());
}

namespace {

/// Returns where kernels' rings lie. On the CPU device all memory is host memory, and one more copy would gain nothing.
RingPlacement placement_of(const Options& options, const proxy::Platform& platform) {
  const bool is_host = options.ring == RingPlacement::automatic && platform.device_memory_is_mappable();
  return is_host ? RingPlacement::host : options.ring;
}

std::unique_ptr<proxy::DeviceCopies> make_copies(const Options& options, proxy::Platform& platform) {
  if (options.ring != RingPlacement::device) return nullptr;
  return std::make_unique<proxy::DeviceCopies>(platform.make_copier());
}

/// Adds the rings that contexts of other processes share with this one. Throws Error if rings with a chosen name cannot
/// be made. Rings that were not chosen (HostRings::kAutomatic) are left out then: connections to other processes use
/// tcp.
void add_host_rings(const Options& options, const std::shared_ptr<proxy::Platform>& platform,
                    proxy::SegmentPool& segments) {
  const bool automatic = options.host_rings == proxy::HostRings::kAutomatic;
  const bool useful = options.p2p && !platform->attaches_any_time();
  if (options.host_rings.empty() || (automatic && !useful)) return;
  // The first process makes the automatic rings for all processes, so their size is not what one of these has chosen.
  const std::uint64_t bytes = automatic ? proxy::default_ring_sizes(true).shared
                                        : ring_sizes(options, *platform).shared;
  const proxy::HostRings::Settings settings{
      .name = options.host_rings, .connections = options.host_connections_max, .ring_bytes = bytes};
  try {
    segments.use_host_rings(std::make_shared<proxy::HostRings>(platform, settings));
  } catch (const Error& error) {
    if (!automatic) throw;
    proxy::log_info(std::string("no rings are shared with other processes, which are reached by tcp: ") + error.what());
    segments.have_no_host_rings(std::string("none: ") + error.what());
  }
}

}  // namespace

DeviceHoldings::DeviceHoldings(const Options& options)
    : device(make_device(options)),
      memory(*device),
      platform(device->platform()),
      table(platform, options.sockets_max, device->has_own_side(), options.words),
      segments(platform, ring_sizes(options, *platform), platform->attaches_any_time() ? 0 : options.connections_max,
               placement_of(options, *platform)),
      copies(make_copies(options, *platform)) {
  if (const std::string& why = table.why_no_device_words(); !why.empty()) {
    proxy::log_info("kernels poll the proxy's words in host memory: " + why);
  }
  add_host_rings(options, platform, segments);
}

DeviceHoldings::~DeviceHoldings() {
  if (device_state != nullptr) device->free(device_state);
}

namespace {

/// Frees the holdings, unless this would wait, or a peer's context still uses ring memory of theirs: that context would
/// then free the last of it on its proxy's thread, which must not wait for kernels. DeviceCopies holds the rings of
/// copies that were under way. collect() gives back those of ended copies, since no proxy's step does so any more.
/// Returns true if it has freed the holdings.
bool try_to_free(DeviceHoldings* holdings) noexcept {
  if (holdings->copies != nullptr) holdings->copies->collect();
  const std::shared_ptr<Device> device = holdings->device;  // must outlive the call
  return holdings->segments.has_all() && device->free_without_waiting([&] { delete holdings; });
}

/// The holdings of ended contexts that could not be freed yet. The mutex is held while they are freed, so that a thread
/// that gives back the last ring memory of one meanwhile finds it in the list afterwards.
class EndedHoldings {
 public:
  /// It is never destroyed, because static contexts may end at any time. It allocates no memory: there may be none, and
  /// its callers must not fail.
  static EndedHoldings& instance() noexcept {
    alignas(EndedHoldings) static std::byte memory[sizeof(EndedHoldings)];
    static EndedHoldings* const ended = new (memory) EndedHoldings;
    return *ended;
  }

  void add(DeviceHoldings* holdings) noexcept {
    const std::lock_guard lock(mutex_);
    holdings->next = std::exchange(first_, holdings);
  }
  void free() noexcept {
    const std::lock_guard lock(mutex_);
    for (DeviceHoldings** link = &first_; *link != nullptr;) {
      DeviceHoldings* const each = *link;
      DeviceHoldings* const next = each->next;
      if (try_to_free(each)) {
        *link = next;
      } else {
        link = &each->next;
      }
    }
  }

 private:
  EndedHoldings() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().leave_to_parent();
                     instance().mutex_.unlock();
                   });
  }
  /// Called in a forked child: only the parent may free the memory and the locks.
  void leave_to_parent() noexcept {
    parents_ = std::exchange(first_, nullptr);
    for (DeviceHoldings* each = parents_; each != nullptr; each = each->next) {
      if (proxy::HostRings* rings = each->segments.host_rings()) rings->leave_to_parent();
    }
  }

  std::mutex mutex_;
  DeviceHoldings* first_ = nullptr;
  DeviceHoldings* parents_ = nullptr;  ///< keeps them reachable, so that they are no leak
};

}  // namespace

/// Also frees holdings that ended before: this context may have used ring memory of theirs, and perhaps no later
/// context ends that would free them.
void EndHoldings::operator()(DeviceHoldings* holdings) const noexcept {
  EndedHoldings::instance().add(holdings);
  free_ended_holdings();
}

void free_ended_holdings() noexcept { EndedHoldings::instance().free(); }

HeldByDevice make_device_holdings(const Options& options) {
  free_ended_holdings();  // the new context then has more memory, and waits less
  return HeldByDevice(new DeviceHoldings(options));
}

}  // namespace gpusock::detail
