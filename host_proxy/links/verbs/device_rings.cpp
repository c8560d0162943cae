#include "host_proxy/links/verbs/device_rings.hpp"

#include "host_proxy/base/log.hpp"

#include <system_error>
#include <utility>

namespace gpusock::proxy::verbs {

std::optional<DeviceRings::Keys> DeviceRings::give(ibv_pd* domain, const Segment& rings) {
  if (!wanted_) return std::nullopt;
  why_not_.clear();
  Keys keys;
  if (!rings.platform().shows_nic_writes()) {
    why_not_ = "this GPU cannot make bytes that a NIC has written into its memory visible to kernels";
  } else if ((keys.rx = give_ring(domain, rings, &RingMemories::rx, rdma::Access::written_by_peers))) {
    keys.tx = give_ring(domain, rings, &RingMemories::tx, rdma::Access::read_by_nic);
  }
  log_once(keys.tx);
  if (!keys.tx) return std::nullopt;
  return keys;
}

rdma::Registration DeviceRings::give_ring(ibv_pd* domain, const Segment& rings,
                                          ringbuf::RingMemory RingMemories::*which, rdma::Access access) {
  const ringbuf::RingMemory memory = rings.callers_rings().*which;
  const auto known_as = reinterpret_cast<std::uint64_t>((rings.proxy_rings().*which).data);
  if (!rings.platform().device_memory_is_mappable()) {
    if (!paths_) paths_ = rdma::gpu_memory_paths();
    return rdma::register_gpu(domain, reinterpret_cast<std::uint64_t>(memory.data), memory.capacity, access, *paths_,
                              why_not_, known_as);
  }
  try {
    return rdma::register_host(domain, memory.data, memory.capacity, access, known_as);
  } catch (const std::system_error& error) {
    why_not_ = error.what();
    return {};
  }
}

void DeviceRings::log_once(const rdma::Registration& region) {
  std::string text;
  if (region) {
    text = "the network device reads and writes rings in device memory";
    if (region.path() != rdma::Path::host) text += std::string(", by ") + to_string(region.path());
    if (!why_not_.empty()) text += "; not by " + std::exchange(why_not_, {});
  } else {
    text = "the network device does not reach rings in device memory: " + why_not_;
  }
  if (text == last_logged_) return;
  region ? log_info(text) : log_warn(text);
  last_logged_ = std::move(text);
}

}  // namespace gpusock::proxy::verbs
