#include "gpusock/cuda/check.hpp"

#include "gpusock/cuda/driver.hpp"

namespace gpusock::cudart {
namespace {

bool thread_has_context() {
  CUcontext context = nullptr;
  const Driver& driver = Driver::get();
  return driver.ctx_get_current != nullptr && driver.ctx_get_current(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace

/// Calls cudaSetDevice() even if this GPU is the current one: the call gives a new thread the context that calls of the
/// driver need.
CurrentGpu::CurrentGpu(int gpu)
    : comes_back_(thread_has_context() && taken(cudaGetDevice(&before_)) == cudaSuccess && before_ != gpu) {
  taken(cudaSetDevice(gpu));
}

CurrentGpu::~CurrentGpu() {
  if (comes_back_) taken(cudaSetDevice(before_));
}

}  // namespace gpusock::cudart
