#pragma once
/// @file The proxy's interface to the memory of a GPU.

#include "gpusock/cuda/arena.hpp"
#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/copier.hpp"
#include "gpusock/cuda/gpu.hpp"
#include "gpusock/cuda/peer_access.hpp"
#include "gpusock/cuda/window.hpp"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/memory/platform.hpp"
#include "rdma/visibility.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::cudart {

/// Shared memory is pinned host memory, at the same address for the GPU and the host. Rings may be in the GPU's own
/// memory.
class CudaPlatform final : public proxy::Platform {
 public:
  explicit CudaPlatform(int gpu) : gpu_(gpu) {}

  void* allocate_shared(std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), ENOMEM,
          "pinning " + std::to_string(bytes) + " bytes of host memory (see ulimit -l; lower Options::sockets_max)");
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free_shared(void* memory, std::size_t) noexcept override { taken(cudaFreeHost(memory)); }

  void attach(void* memory, std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), ENOMEM,
          "pinning " + std::to_string(bytes) +
              " bytes of rings (see ulimit -l; lower Options::connections_max or ring_bytes)");
  }
  void detach(void* memory, std::size_t) noexcept override { taken(cudaHostUnregister(memory)); }

  /// False, because pinning memory may wait for running kernels, and one of them may wait for the connection that needs
  /// it.
  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return false; }

  /// False: no processor can use device memory, and no process maps another one's while kernels run.
  bool device_memory_is_mappable() const override { return false; }
  std::byte* allocate_device(std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), ENOMEM,
          "allocating " + std::to_string(bytes) +
              " bytes of device memory for rings (lower Options::connections_max or "
              "ring_bytes, or set GPUSOCK_RING=host)");
    return static_cast<std::byte*>(memory);
  }
  void free_device(std::byte* memory) noexcept override { taken(cudaFree(memory)); }
  void zero_device(std::byte* memory, std::size_t bytes) override { Gpu::get(gpu_).zero(memory, bytes); }
  /// Words come over the bus as a NIC's writes do, so kernels may poll them if the GPU sees such writes in order (V3).
  std::unique_ptr<proxy::DeviceWindow> make_window(std::size_t bytes) override {
    if (!orders_nic_writes()) {
      throw Error::with_cause(
          ENOTSUP, "GPU " + std::to_string(gpu_) + " does not say that it sees what comes over the bus in order");
    }
    return CudaWindow::make(gpu_, bytes);
  }
  std::byte* proxy_address(std::byte* device_memory) const override { return device_memory; }
  bool reaches_device_memory_of(const Platform& other) const override {
    return is_same_device_as(other) || PeerAccess::get().reaches(gpu_, gpu_of(other));
  }
  bool is_same_device_as(const Platform& other) const override { return gpu_of(other) == gpu_; }
  std::string why_apart_from(const Platform& other) const override {
    return PeerAccess::get().why_not(gpu_, gpu_of(other));
  }
  std::unique_ptr<proxy::Copier> make_copier() override { return std::make_unique<CudaCopier>(Gpu::get(gpu_)); }

  bool shows_nic_writes() const override { return nic_writes_ != rdma::NicWrites::unsure; }
  bool orders_nic_writes() const override { return nic_writes_ == rdma::NicWrites::in_order; }  // V3, V8
  int flush_nic_writes() override {
    if (nic_writes_ == rdma::NicWrites::in_order) return 0;
    const CurrentGpu current(gpu_);  // the driver flushes the thread's current context; any thread may run this
    return rdma::flush_writes_to_gpu(*rdma::cuda_driver());
  }

  std::vector<int> near_processors() const override {
    const std::string address = name_on_host();
    return address.empty() ? std::vector<int>() : proxy::processors_near(address);
  }

  /// Returns the GPU's PCI address, as its number may differ from one process to the next (CUDA_VISIBLE_DEVICES).
  std::string name_on_host() const override {
    char address[32] = {};
    return taken(cudaDeviceGetPCIBusId(address, sizeof address, gpu_)) == cudaSuccess ? address : std::string();
  }
  std::unique_ptr<proxy::DeviceArena> make_arena(std::size_t bytes) override { return CudaArena::make(gpu_, bytes); }
  std::unique_ptr<proxy::DeviceArena> map_arena(proxy::Descriptor descriptor, std::size_t bytes,
                                                const std::string& device) override {
    return CudaArena::map(gpu_, descriptor.get(), bytes, device);
  }
  bool while_quiet(const std::function<void()>& action) override { return cudart::while_quiet(Gpu::all(), action); }

 private:
  /// All platforms of the process are of this kind.
  static int gpu_of(const Platform& other) { return static_cast<const CudaPlatform&>(other).gpu_; }

  int gpu_;
  rdma::NicWrites nic_writes_ = rdma::visibility_of_nic_writes(rdma::cuda_driver(), gpu_);
};

}  // namespace gpusock::cudart
