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
  if (rings.platform().orders_nic_writes()) keys.word = give_word(domain, rings);
  return keys;
}

/// Registers the word that kernels poll. Rings are used even without it: the proxy then passes positions on.
rdma::Registration DeviceRings::give_word(ibv_pd* domain, const Segment& rings) {
  rdma::Registration word = give_memory(domain, rings.platform(), rings.nic_word(), sizeof(std::uint64_t),
                                        rdma::Access::written_by_peers, rings.proxy_nic_word());
  if (word) return word;
  std::string text = "the network device does not reach words in device memory, so the proxy passes positions on: " +
                     why_not_;
  if (text != last_word_logged_) log_warn(text);
  last_word_logged_ = std::move(text);
  return word;
}

rdma::Registration DeviceRings::give_ring(ibv_pd* domain, const Segment& rings,
                                          ringbuf::RingMemory RingMemories::*which, rdma::Access access) {
  const ringbuf::RingMemory memory = rings.callers_rings().*which;
  return give_memory(domain, rings.platform(), memory.data, memory.capacity, access, (rings.proxy_rings().*which).data);
}

rdma::Registration DeviceRings::give_memory(ibv_pd* domain, const Platform& platform, void* memory, std::size_t bytes,
                                            rdma::Access access, const void* known_as) {
  const auto address = reinterpret_cast<std::uint64_t>(known_as);
  if (!platform.device_memory_is_mappable()) {
    if (!paths_) paths_ = rdma::gpu_memory_paths();
    return rdma::register_gpu(domain, reinterpret_cast<std::uint64_t>(memory), bytes, access, *paths_, why_not_,
                              address);
  }
  try {
    return rdma::register_host(domain, memory, bytes, access, address);
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
