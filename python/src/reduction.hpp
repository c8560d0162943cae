#pragma once
/// @file Reductions: which ones a group's schedules do, and the others, on this rank's processor.

#include "param_sync/group.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>
#include <vector>

namespace gpusock_torch {

/// The types and operations that schedules of a group reduce.
struct GroupReduction {
  param_sync::DataType type;
  param_sync::ReduceOp op;
};

/// Throws c10::Error if no reduction of this type by this operation exists.
void check_reduction(at::ScalarType type, const c10d::ReduceOp& op);
/// The same reduction on a group, if that has it. A premultiplied sum counts as a sum: the caller multiplies.
std::optional<GroupReduction> group_reduction(at::ScalarType type, const c10d::ReduceOp& op);
/// Multiplies a tensor by the factor of a premultiplied sum, in place. Does nothing for other operations.
void premultiply(at::Tensor& tensor, const c10d::ReduceOp& op);
/// Reduces `rows` (of one type and size) in their order into the first one. `ranks`: the divisor of an average.
void reduce_rows(std::vector<at::Tensor>& rows, const c10d::ReduceOp& op, int ranks);

}  // namespace gpusock_torch
