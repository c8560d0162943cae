#pragma once
/// @file CUDA's language and built-ins for a host compiler: a kernel written as plain CUDA compiles with this and runs
/// on the CPU device (launch.hpp). Not for nvcc, which has all of it itself.

#include "cpu_device/detail/keywords.hpp"

#include "cpu_device/detail/atomic_functions.hpp"
#include "cpu_device/detail/block_shared.hpp"
#include "cpu_device/detail/builtins.hpp"
#include "cpu_device/detail/cooperative_groups.hpp"
#include "cpu_device/detail/group_call.hpp"
#include "cpu_device/detail/math_functions.hpp"
#include "cpu_device/detail/no_runtime.hpp"
#include "cpu_device/detail/vector_types.hpp"
#include "cpu_device/detail/warp.hpp"
