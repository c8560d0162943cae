#pragma once
/// @file Floats of kernels, in device memory or in host memory.

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>

namespace param_sync {

/// Zeroed floats that kernels read and write. In host memory a GPU's kernels reach them over the bus. The destructor
/// returns at once, as that of gpusock::DeviceBuffer.
class FloatMemory {
 public:
  /// Makes `count` floats in a context, which must outlive them. Throws gpusock::Error (ENOMEM).
  FloatMemory(gpusock::Context& context, std::size_t count, bool in_host_memory)
      : memory_(in_host_memory ? Memory(std::in_place_type<Host>, context, count)
                               : Memory(std::in_place_type<Device>, context, count)) {}

  /// An address for kernels.
  float* data() const {
    return std::visit([](const auto& memory) { return memory.data(); }, memory_);
  }
  /// Floats.
  std::size_t size() const {
    return std::visit([](const auto& memory) { return memory.size(); }, memory_);
  }

  /// Copies floats to those from number `offset` on, and waits until done. Kernels do not use them meanwhile. Throws
  /// gpusock::Error (EINVAL) past the end of device memory.
  void copy_in(std::span<const float> from, std::size_t offset = 0) {
    if (Device* const device = std::get_if<Device>(&memory_)) return device->copy_in(from, offset);
    std::ranges::copy(from, data() + offset);
  }
  /// Copies floats from number `offset` on to `to`, as copy_in() does.
  void copy_out(std::span<float> to, std::size_t offset = 0) const {
    if (const Device* const device = std::get_if<Device>(&memory_)) return device->copy_out(to, offset);
    std::copy_n(data() + offset, to.size(), to.data());
  }

 private:
  using Device = gpusock::DeviceBuffer<float>;
  using Host = gpusock::Mapped<float>;
  using Memory = std::variant<Device, Host>;

  Memory memory_;
};

}  // namespace param_sync
