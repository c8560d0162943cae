#pragma once
/// @file What GPUSOCK_CPU_SHAPE says: read by the CPU device, and checked with the other variables when a program
/// starts.

#include "gpusock/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace gpusock::detail {

enum class CpuShape { cpu, gpu, gpus_apart };

/// Throws Error (EINVAL) where the variable has a value that it cannot have.
inline CpuShape cpu_shape_from_env() {
  const char* text = std::getenv("GPUSOCK_CPU_SHAPE");
  const std::string shape = text == nullptr ? "" : text;
  if (shape == "gpu") return CpuShape::gpu;
  if (shape == "gpus-apart") return CpuShape::gpus_apart;
  if (shape.empty() || shape == "cpu") return CpuShape::cpu;
  throw Error::with_cause(EINVAL,
                          "GPUSOCK_CPU_SHAPE='" + shape + "' is no shape of the CPU device: cpu, gpu or gpus-apart");
}

}  // namespace gpusock::detail
