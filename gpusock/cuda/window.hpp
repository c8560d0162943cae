#pragma once
/// @file GPU memory into which the host stores, through GDRCopy's mapping of the GPU's BAR.

#include "gpusock/cuda/gdrcopy.hpp"
#include "host_proxy/memory/device_window.hpp"

#include <cstddef>
#include <memory>

namespace gpusock::cudart {

class CudaWindow final : public proxy::DeviceWindow {
 public:
  /// Allocates, zeroes and maps `bytes` of this GPU's memory. May wait for kernels. Throws Error: (ENOTSUP) there is no
  /// GDRCopy, or it cannot map the memory, (ENOMEM).
  static std::unique_ptr<CudaWindow> make(int gpu, std::size_t bytes);
  ~CudaWindow() override;

  std::byte* device() const override { return device_; }
  std::byte* mapping() const override { return static_cast<std::byte*>(mapping_); }

 private:
  CudaWindow(const GdrCopy& gdrcopy, int gpu, std::size_t bytes);

  const GdrCopy& gdrcopy_;
  int gpu_;
  std::size_t bytes_;            ///< whole pages of the GPU
  void* memory_ = nullptr;       ///< as it was allocated
  std::byte* device_ = nullptr;  ///< the first whole page in it
  GdrCopy::Connection* connection_ = nullptr;
  GdrCopy::Pinned pinned_;
  bool is_pinned_ = false;
  void* mapping_ = nullptr;
};

}  // namespace gpusock::cudart
