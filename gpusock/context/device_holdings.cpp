#include "gpusock/context/device_holdings.hpp"

#include "host_proxy/base/log.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <mutex>
#include <utility>

namespace gpusock::detail {

proxy::RingSizes ring_sizes(const Options& options, const proxy::Platform& platform) {
  if (options.ring_bytes != 0) return {options.ring_bytes, options.ring_bytes};
  return proxy::default_ring_sizes(!platform.attaches_any_time());
}

namespace {

/// Where kernels' rings lie. On the CPU device all memory is the host's, and a copy more is only a loss.
RingPlacement placement_of(const Options& options, const proxy::Platform& platform) {
  const bool is_host = options.ring == RingPlacement::automatic && platform.device_memory_is_mappable();
  return is_host ? RingPlacement::host : options.ring;
}

std::unique_ptr<proxy::DeviceCopies> make_copies(const Options& options, proxy::Platform& platform) {
  if (options.ring != RingPlacement::device) return nullptr;
  return std::make_unique<proxy::DeviceCopies>(platform.make_copier());
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
  if (options.host_rings.empty()) return;
  segments.use_host_rings(std::make_shared<proxy::HostRings>(
      platform, proxy::HostRings::Settings{.name = options.host_rings,
                                           .connections = options.host_connections_max,
                                           .ring_bytes = ring_sizes(options, *platform).shared}));
}

DeviceHoldings::~DeviceHoldings() {
  if (device_state != nullptr) device->free(device_state);
}

namespace {

/// The holdings of contexts that have ended, while kernels of others run.
struct EndedHoldings {
  std::mutex mutex;
  DeviceHoldings* first = nullptr;

  static EndedHoldings& instance() {
    static EndedHoldings* const ended = new EndedHoldings;  // never destroyed: static contexts go at any time
    return *ended;
  }
};

}  // namespace

namespace {

/// A peer's context may have ring memory still. It would free the last of it on its proxy's thread, which must not wait
/// for kernels: so all stays until it is back. DeviceCopies has the rings of copies that were under way, and no step of
/// a proxy asks any more whether they have ended.
bool try_to_free(DeviceHoldings* holdings) noexcept {
  if (holdings->copies != nullptr) holdings->copies->collect();
  const std::shared_ptr<Device> device = holdings->device;  // it outlives the call
  return holdings->segments.has_all() && device->free_without_waiting([&] { delete holdings; });
}

}  // namespace

void EndHoldings::operator()(DeviceHoldings* holdings) const noexcept {
  if (try_to_free(holdings)) return;
  const std::lock_guard lock(EndedHoldings::instance().mutex);
  holdings->next = std::exchange(EndedHoldings::instance().first, holdings);
}

void free_ended_holdings() noexcept {
  EndedHoldings& ended = EndedHoldings::instance();
  DeviceHoldings* left = nullptr;
  {
    const std::lock_guard lock(ended.mutex);
    left = std::exchange(ended.first, nullptr);
  }
  while (left != nullptr) {
    DeviceHoldings* const next = left->next;
    EndHoldings()(left);
    left = next;
  }
}

HeldByDevice make_device_holdings(const Options& options) {
  free_ended_holdings();  // there is more memory, and less to wait for
  return HeldByDevice(new DeviceHoldings(options));
}

}  // namespace gpusock::detail
