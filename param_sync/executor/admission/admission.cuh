#pragma once
/// @file When an op of a resident lane may begin: when all rules of a list allow it. To add a rule, write a file like
/// credits.cuh and add its type to the list here.

#include "param_sync/executor/admission/credits.cuh"
#include "param_sync/executor/admission/priority.cuh"

namespace param_sync::executor::admission {

/// The rules for one lane in one step. before_op() of a rule may wait, or end the run by returning false. after_op() is
/// called when the op is complete, and end() at the end of the step. Block-collective.
template <class... Rules>
class Admission : Rules... {
 public:
  __device__ explicit Admission([[maybe_unused]] const Asking& asking) : Rules(asking)... {}

  __device__ bool before_op([[maybe_unused]] const executor::LaneOp& op) { return (Rules::before_op(op) && ...); }
  __device__ void after_op([[maybe_unused]] const executor::LaneOp& op) { (Rules::after_op(op), ...); }
  __device__ void end() { (Rules::end(), ...); }
};

/// No rules: ops begin at once.
using Anyone = Admission<>;

/// Layers that are needed first send first, and an owner has at most as many senders as credits. An Exchange can turn
/// off both (gives_way, credits).
using Usual = Admission<Priority, Credits>;

}  // namespace param_sync::executor::admission
