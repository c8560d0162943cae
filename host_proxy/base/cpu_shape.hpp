#pragma once
/// @file Parses GPUSOCK_CPU_SHAPE. The CPU device reads this variable; it is checked with the other variables when a
/// program starts.

#include "plain_types/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace gpusock::proxy {

enum class CpuShape { cpu, gpu, gpus_apart };

/// The number of GPUs of the shapes gpu and gpus-apart, as in the double of the CUDA runtime. (They share one pool of
/// threads.)
inline constexpr int kGpusOfShape = 2;

/// Parses "cpu", "gpu", "gpus-apart" or "". Throws Error (EINVAL) for any other text.
inline CpuShape parse_cpu_shape(const std::string& shape) {
  if (shape == "gpu") return CpuShape::gpu;
  if (shape == "gpus-apart") return CpuShape::gpus_apart;
  if (shape.empty() || shape == "cpu") return CpuShape::cpu;
  throw Error::with_cause(EINVAL,
                          "GPUSOCK_CPU_SHAPE='" + shape + "' is no shape of the CPU device: cpu, gpu or gpus-apart");
}

/// The shape that the variable names. Throws Error (EINVAL) if its value is invalid.
inline CpuShape cpu_shape_from_env() {
  const char* text = std::getenv("GPUSOCK_CPU_SHAPE");
  return parse_cpu_shape(text == nullptr ? "" : text);
}

}  // namespace gpusock::proxy
