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

/// cudaSetDevice() is called also where the number is the current one: it gives a new thread the context that calls of
/// the driver need.
CurrentGpu::CurrentGpu(int gpu)
    : comes_back_(thread_has_context() && taken(cudaGetDevice(&before_)) == cudaSuccess && before_ != gpu) {
  taken(cudaSetDevice(gpu));
}

CurrentGpu::~CurrentGpu() {
  if (comes_back_) taken(cudaSetDevice(before_));
}

}  // namespace gpusock::cudart
