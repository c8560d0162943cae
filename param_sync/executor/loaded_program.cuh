#pragma once
/// @file A rank's programs in device memory, and the in-place reservations there of tensors whose sends may be written
/// in place.

#include "param_sync/executor/admission/asking.cuh"
#include "param_sync/executor/in_place.hpp"
#include "param_sync/executor/in_place_reservation.cuh"
#include "param_sync/executor/program.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace param_sync::executor {

/// A program in device memory.
struct LoadedProgram {
  gpusock::DeviceBuffer<LaneOps> lanes;
  gpusock::DeviceBuffer<LaneOp> ops;
  gpusock::DeviceBuffer<Reached> after;
  gpusock::DeviceBuffer<int> operands;
  int chunks;
  bool lanes_meet;
  int reorder_entries;           ///< entries of a lane's reorder buffer
  std::uint64_t reorder_floats;  ///< floats of an entry
  gpusock::DeviceBuffer<float> reorder_buffers;
  std::uint64_t ops_of_lane_max = 0;
  std::uint64_t leading = 0;      ///< number of lanes whose first op leads()
  bool grants_additions = false;  ///< true if it has as many signals to other ranks as recv_reduce ops

  LoadedProgram(gpusock::Context& context, const Program& program, std::uint64_t unit_floats)
      : lanes(context, program.lanes.size()),
        ops(context, program.ops.size()),
        after(context, program.after.size()),
        operands(context, program.operands.size()),
        chunks(program.chunks),
        lanes_meet(program.lanes_meet),
        reorder_entries(program.reorder_entries),
        reorder_floats(static_cast<std::uint64_t>(program.reorder_chunks) * unit_floats),
        reorder_buffers(context, reorder_floats * static_cast<std::uint64_t>(reorder_entries) * program.lanes.size()) {
    lanes.copy_in(program.lanes);
    if (!program.operands.empty()) operands.copy_in(program.operands);
    if (!program.ops.empty()) ops.copy_in(program.ops);
    if (!program.after.empty()) after.copy_in(program.after);
    const auto count_of = [&](const auto& is_one) {
      return std::count_if(program.ops.begin(), program.ops.end(), is_one);
    };
    grants_additions = count_of([](const LaneOp& op) { return op.is_signal() && op.out != schedule::kNobody; }) ==
                       count_of([](const LaneOp& op) { return op.kind == schedule::Kind::recv_reduce; });
    for (const LaneOps& lane : program.lanes) {
      ops_of_lane_max = std::max(ops_of_lane_max, static_cast<std::uint64_t>(lane.end - lane.begin));
      if (lane.begin != lane.end && admission::leads(program.ops[static_cast<std::size_t>(lane.begin)])) ++leading;
    }
  }
};

/// The reservations of a tensor whose sends may be written in place.
struct ReservationMemory {
  gpusock::DeviceBuffer<InPlaceReservation> reservations;
  gpusock::DeviceBuffer<int> of_op;

  ReservationMemory(gpusock::Context& context, const Program& program, const std::vector<InPlaceSend>& sends)
      : reservations(context, sends.size()), of_op(context, program.ops.size()) {
    std::vector<InPlaceReservation> all;
    std::vector<int> indices(program.ops.size(), schedule::kNobody);
    for (const InPlaceSend& send : sends) {
      indices[static_cast<std::size_t>(send.op)] = static_cast<int>(all.size());
      all.push_back({.floats = send.floats, .decision = 0, .first = nullptr, .first_floats = 0, .rest = nullptr});
    }
    reservations.copy_in(all);
    of_op.copy_in(indices);
  }
};

}  // namespace param_sync::executor
