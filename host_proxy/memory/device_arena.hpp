#pragma once
/// @file A piece of a device's own memory that contexts of several processes use. Why:
/// docs/decisions/024-rings-between-processes.md.

#include <cstddef>

namespace gpusock::proxy {

/// Made here, or mapped from another process. The destructor may wait for kernels.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;

  /// As this process's kernels reach it.
  virtual std::byte* memory() const = 0;
  /// What another process maps it by; -1 where it is another process's.
  virtual int descriptor() const { return -1; }
};

}  // namespace gpusock::proxy
