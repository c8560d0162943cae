#pragma once
/// @file What of a context its device knows, and how it ends while kernels of other contexts run.

#include "gpusock/context/kernel_memory.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/table/table_memory.hpp"

#include <memory>

namespace gpusock::detail {

/// What of a context its device knows. Freeing that waits for kernels on a GPU, also for those of other contexts, which
/// may be waiting for something that comes after this context's end.
struct DeviceHoldings {
  explicit DeviceHoldings(const Options& options);
  ~DeviceHoldings();

  std::shared_ptr<Device> device;
  KernelMemory memory;
  std::shared_ptr<proxy::Platform> platform;
  proxy::TableMemory table;
  proxy::SegmentPool segments;
  std::unique_ptr<proxy::DeviceCopies> copies;  // where rings are in device memory
  void* device_state = nullptr;                 // the kernels' own state, where device memory is not host memory

  DeviceHoldings* next = nullptr;  ///< in the list of those that have ended
};

/// Frees holdings at once or, where that would wait or a peer's context has ring memory of theirs, at a later call of
/// free_ended_holdings(): the end of the next context is one.
struct EndHoldings {
  void operator()(DeviceHoldings* holdings) const noexcept;
};
void free_ended_holdings() noexcept;

using HeldByDevice = std::unique_ptr<DeviceHoldings, EndHoldings>;
/// Throws Error.
HeldByDevice make_device_holdings(const Options& options);

/// How large this context's rings are.
proxy::RingSizes ring_sizes(const Options& options, const proxy::Platform& platform);

}  // namespace gpusock::detail
