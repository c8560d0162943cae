#pragma once
/// @file GPU memory that several processes map, by CUDA's virtual memory management. A file descriptor gives it to
/// another process.

#include "gpusock/cuda/driver.hpp"
#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/memory/device_arena.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace gpusock::cudart {

class CudaArena final : public proxy::DeviceArena {
 public:
  /// Allocates memory of this GPU. May wait for kernels. Throws Error: (ENOTSUP) it cannot be shared, (ENOMEM).
  static std::unique_ptr<CudaArena> make(int gpu, std::size_t bytes);
  /// Maps memory of the GPU with this PCI address, which is this GPU or one that it reaches, for kernels of this GPU.
  /// May wait for kernels. Throws Error as make(), or (EPROTO) the descriptor leads to nothing of this size there.
  static std::unique_ptr<CudaArena> map(int gpu, int descriptor, std::size_t bytes, const std::string& address);
  ~CudaArena() override;
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  std::byte* memory() const override { return reinterpret_cast<std::byte*>(address_); }
  int descriptor() const override { return descriptor_.get(); }

 private:
  struct Allocation;

  CudaArena(int gpu, std::size_t bytes);
  void map(const Allocation& allocation, int gpu);

  int gpu_;
  std::size_t bytes_;  // whole granules
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  proxy::Descriptor descriptor_;
};

}  // namespace gpusock::cudart
