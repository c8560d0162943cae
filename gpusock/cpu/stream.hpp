#pragma once
/// @file A stream of the CPU device.

#include "cpu_device/launch.hpp"
#include "gpusock/context/device.hpp"

namespace gpusock::detail {

class CpuStream : public DeviceStream {
 public:
  void synchronize() override {
    try {
      native.synchronize();
    } catch (const cpu_device::KernelFault& fault) {
      throw Error(EFAULT, fault.what());
    }
  }
  bool idle() const override { return native.idle(); }

  cpu_device::Stream native;
};

}  // namespace gpusock::detail
