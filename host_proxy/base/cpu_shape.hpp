#pragma once
/// @file Parses GPUSOCK_CPU_SHAPE and GPUSOCK_CPU_GROUP_CALLS. The CPU device reads these variables; they are checked
/// with the other variables when a program starts.

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

/// Who makes the calls of a group on the CPU device: its leader for all threads, or all of them, as on a GPU.
enum class GroupCalls { leader, all };

/// Parses "leader", "all" or "". Throws Error (EINVAL) for any other text.
inline GroupCalls parse_group_calls(const std::string& calls) {
  if (calls == "all") return GroupCalls::all;
  if (calls.empty() || calls == "leader") return GroupCalls::leader;
  throw Error::with_cause(EINVAL, "GPUSOCK_CPU_GROUP_CALLS='" + calls + "' must be leader or all");
}

/// What the variable says. Throws Error (EINVAL) if its value is invalid.
inline GroupCalls group_calls_from_env() {
  const char* text = std::getenv("GPUSOCK_CPU_GROUP_CALLS");
  return parse_group_calls(text == nullptr ? "" : text);
}

}  // namespace gpusock::proxy
