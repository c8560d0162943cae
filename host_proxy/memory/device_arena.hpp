#pragma once
/// @file A piece of a device's own memory that contexts of several processes use. Why:
/// docs/decisions/024-rings-between-processes.md.

#include <cstddef>

namespace gpusock::proxy {

/// An arena that was made here, or mapped from another process. The destructor may wait for kernels.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;

  /// Its address for this process's kernels.
  virtual std::byte* memory() const = 0;
  /// The descriptor by which another process maps it; -1 if another process made it.
  virtual int descriptor() const { return -1; }
};

}  // namespace gpusock::proxy
