#pragma once
/// @file When an op of a resident lane may begin: when all rules of a list say so. A new rule is a file like
/// credits.cuh, and a type in the list here.

#include "param_sync/executor/admission/credits.cuh"
#include "param_sync/executor/admission/priority.cuh"

namespace param_sync::executor::admission {

/// Rules for one lane in one step. Each is made of what asks, and hears of each op before it begins, when it may wait,
/// or end the run by false; when it is complete; and of the end of the step. Block-collective.
template <class... Rules>
class Admission : Rules... {
 public:
  __device__ explicit Admission([[maybe_unused]] const Asking& asking) : Rules(asking)... {}

  __device__ bool before_op([[maybe_unused]] const executor::LaneOp& op) { return (Rules::before_op(op) && ...); }
  __device__ void after_op([[maybe_unused]] const executor::LaneOp& op) { (Rules::after_op(op), ...); }
  __device__ void end() { (Rules::end(), ...); }
};

/// Ops wait for nothing.
using Anyone = Admission<>;

/// Layers that are needed first go first, and so many senders as an owner has credits. Both are off where an Exchange
/// says so.
using Usual = Admission<Priority, Credits>;

}  // namespace param_sync::executor::admission
