#pragma once
/// @file What GPUSOCK_CPU_SHAPE says: read by the CPU device, and checked with the other variables when a program
/// starts.

#include "plain_types/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace gpusock::proxy {

enum class CpuShape { cpu, gpu, gpus_apart };

/// GPUs of the shapes gpu and gpus-apart: as many as the double of the CUDA runtime has. (They share one pool of
/// threads.)
inline constexpr int kGpusOfShape = 2;

/// From "cpu", "gpu", "gpus-apart" or "". Throws Error (EINVAL) for any other text.
inline CpuShape parse_cpu_shape(const std::string& shape) {
  if (shape == "gpu") return CpuShape::gpu;
  if (shape == "gpus-apart") return CpuShape::gpus_apart;
  if (shape.empty() || shape == "cpu") return CpuShape::cpu;
  throw Error::with_cause(EINVAL,
                          "GPUSOCK_CPU_SHAPE='" + shape + "' is no shape of the CPU device: cpu, gpu or gpus-apart");
}

/// What the variable says. Throws Error (EINVAL) where it has a value that it cannot have.
inline CpuShape cpu_shape_from_env() {
  const char* text = std::getenv("GPUSOCK_CPU_SHAPE");
  return parse_cpu_shape(text == nullptr ? "" : text);
}

}  // namespace gpusock::proxy
