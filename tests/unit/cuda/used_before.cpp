// CUDA was in use before gpusock came to the process: what the environment says now is not what the driver has read.
#include "gpusock/cuda/environment.hpp"

#include <cstdio>
#include <cstdlib>

/// The test's libcuda.so.1: the driver has been initialised.
extern "C" int cuCtxGetCurrent(void** context);

int main() {
  void* context = nullptr;
  if (cuCtxGetCurrent(&context) != 0) return 2;
  const int queues = gpusock::cudart::hardware_queues();
  std::printf("CUDA_DEVICE_MAX_CONNECTIONS is %s; hardware queues: %d\n", std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
              queues);
  return queues == 8 ? 0 : 1;
}
