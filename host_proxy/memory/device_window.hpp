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

  /// For the device's threads.
  virtual std::byte* device() const = 0;
  /// For the host's stores (ringbuf/posted_word.hpp). Nobody loads through it: that would take a round trip over the
  /// bus.
  virtual std::byte* mapping() const = 0;
};

}  // namespace gpusock::proxy
