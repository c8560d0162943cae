#pragma once
// What kind of device the tests run on, where a test has to know: few do.
#include <cstdlib>
#include <string_view>

namespace gpusock::test {

/// True on a GPU, and on the CPU device in the shape of one: rings are made with their context, kernels and host
/// threads are caller sides of their own, other processes' memory cannot be mapped while kernels run.
inline bool like_a_gpu() {
#if defined(GPUSOCK_DEVICE_CUDA)
  return true;
#else
  const char* shape = std::getenv("GPUSOCK_CPU_SHAPE");
  return shape != nullptr && std::string_view(shape).starts_with("gpu");
#endif
}

/// True if p2p works between processes: always on the CPU device, and on a GPU where they have rings in common.
inline bool shares_between_processes() {
  const char* rings = std::getenv("GPUSOCK_HOST_RINGS");
  return !like_a_gpu() || rings == nullptr || std::string_view(rings) != "off";
}

}  // namespace gpusock::test
