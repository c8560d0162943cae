#pragma once
/// @file The CPU device's memory, which belongs to this process.

#include "host_proxy/memory/platform.hpp"

#include <cstddef>
#include <memory>

namespace gpusock::proxy {

/// Ordinary memory of this process: the platform of the CPU device.
class HostPlatform final : public Platform {
 public:
  void* allocate_shared(std::size_t bytes) override;
  void free_shared(void* memory, std::size_t bytes) noexcept override;
  void attach(void*, std::size_t) override {}
  void detach(void*, std::size_t) noexcept override {}
  bool attaches_any_time() const override { return true; }
  bool callers_can_wake() const override { return true; }
  bool device_memory_is_mappable() const override { return true; }
  std::byte* allocate_device(std::size_t bytes) override;
  void free_device(std::byte* memory) noexcept override;
  void zero_device(std::byte* memory, std::size_t bytes) override;
  std::byte* proxy_address(std::byte* device_memory) const override;
  bool reaches_device_memory_of(const Platform& other) const override { return other.device_memory_is_mappable(); }
  std::unique_ptr<Copier> make_copier() override;
  bool shows_nic_writes() const override { return true; }   // ordinary memory: V1 (rdma/visibility.hpp) holds for it
  bool orders_nic_writes() const override { return true; }  // the same
};

}  // namespace gpusock::proxy
