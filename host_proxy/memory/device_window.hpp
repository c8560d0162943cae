#pragma once
/// @file Device memory that the host stores into, through a mapping of the device's BAR.

#include <cstddef>

namespace gpusock::proxy {

/// The same bytes under two addresses. Zeroed when it is made.
class DeviceWindow {
 public:
  DeviceWindow() = default;
  virtual ~DeviceWindow() = default;
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  /// The address for the device's threads.
  virtual std::byte* device() const = 0;
  /// The address for the host's stores (ringbuf/bar_write.hpp). The host never loads through it, as a load would take
  /// a round trip over the bus.
  virtual std::byte* mapping() const = 0;
};

}  // namespace gpusock::proxy
