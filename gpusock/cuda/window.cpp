#include "gpusock/cuda/window.hpp"

#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/gpu.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace gpusock::cudart {
namespace {

/// GDRCopy pins whole pages of this size (gdrapi.h, GPU_PAGE_SIZE). It is a multiple of the host's page size, so that a
/// mapping begins where the pinned memory does.
constexpr std::size_t kGpuPage = 65536;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kGpuPage - 1) / kGpuPage * kGpuPage; }

void require(int error, const std::string& what) {
  if (error != 0) throw Error::with_cause(ENOTSUP, "GDRCopy cannot " + what + ": " + std::strerror(error));
}

}  // namespace

CudaWindow::CudaWindow(const GdrCopy& gdrcopy, int gpu, std::size_t bytes)
    : gdrcopy_(gdrcopy), gpu_(gpu), bytes_(whole_pages(bytes)) {}

std::unique_ptr<CudaWindow> CudaWindow::make(int gpu, std::size_t bytes) {
  std::string why;
  const GdrCopy* const gdrcopy = GdrCopy::get(why);
  if (gdrcopy == nullptr) throw Error::with_cause(ENOTSUP, why);
  const CurrentGpu current(gpu);
  std::unique_ptr<CudaWindow> window(new CudaWindow(*gdrcopy, gpu, bytes));
  window->connection_ = gdrcopy->open();
  if (window->connection_ == nullptr) {
    throw Error::with_cause(ENOTSUP, "GDRCopy finds no kernel module: load gdrdrv, and let this user open /dev/gdrdrv");
  }
  const std::size_t allocated = window->bytes_ + kGpuPage;  // cudaMalloc aligns to less than a page
  check(cudaMalloc(&window->memory_, allocated), ENOMEM,
        "allocating " + std::to_string(allocated) + " bytes of GPU memory for words that kernels poll");
  const auto first = whole_pages(reinterpret_cast<std::uintptr_t>(window->memory_));
  window->device_ = reinterpret_cast<std::byte*>(first);
  Gpu::get(gpu).zero(window->device_, window->bytes_);
  const std::string what = std::to_string(window->bytes_) + " bytes of GPU memory";
  require(gdrcopy->pin_buffer(window->connection_, first, window->bytes_, 0, 0, &window->pinned_), "pin " + what);
  window->is_pinned_ = true;
  require(gdrcopy->map(window->connection_, window->pinned_, &window->mapping_, window->bytes_), "map " + what);
  return window;
}

CudaWindow::~CudaWindow() {
  if (mapping_ != nullptr) gdrcopy_.unmap(connection_, pinned_, mapping_, bytes_);
  if (is_pinned_) gdrcopy_.unpin_buffer(connection_, pinned_);
  if (connection_ != nullptr) gdrcopy_.close(connection_);
  if (memory_ == nullptr) return;
  const CurrentGpu current(gpu_);
  taken(cudaFree(memory_));
}

}  // namespace gpusock::cudart
