#pragma once
/// @file The parts of a context that its device uses, and how they are freed while kernels of other contexts run.

#include "gpusock/context/kernel_memory.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/table/table_memory.hpp"

#include <memory>

namespace gpusock::detail {

/// The parts of a context that its device uses. On a GPU, freeing them waits for kernels, also for those of other
/// contexts. Such a kernel may wait for something that happens only after this context has ended.
struct DeviceHoldings {
  explicit DeviceHoldings(const Options& options);
  ~DeviceHoldings();

  std::shared_ptr<Device> device;
  KernelMemory memory;
  std::shared_ptr<proxy::Platform> platform;
  proxy::TableMemory table;
  proxy::SegmentPool segments;
  std::unique_ptr<proxy::DeviceCopies> copies;  // nullptr unless Options::ring is device
  void* device_state = nullptr;                 // the kernels' own state; nullptr if device memory is host memory

  DeviceHoldings* next = nullptr;  ///< in the list of ended holdings
};

/// Frees holdings at once. If that would wait, or a peer's context uses ring memory of theirs, a later call of
/// free_ended_holdings() frees them, for example at the end of the next context.
struct EndHoldings {
  void operator()(DeviceHoldings* holdings) const noexcept;
};
void free_ended_holdings() noexcept;

using HeldByDevice = std::unique_ptr<DeviceHoldings, EndHoldings>;
/// Throws Error.
HeldByDevice make_device_holdings(const Options& options);

/// Returns the sizes of this context's rings.
proxy::RingSizes ring_sizes(const Options& options, const proxy::Platform& platform);

}  // namespace gpusock::detail
