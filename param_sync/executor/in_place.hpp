#pragma once
/// @file Which sends need no copy: the kernel that computes what they send can write it into the ring.

#include "param_sync/executor/program.hpp"

namespace param_sync::executor {

/// A send whose floats no op of its rank reads afterwards.
struct InPlaceSend {
  int op = 0;     ///< index in Program::ops
  Floats floats;  ///< the tensor's floats that it sends in a step's first pass
};

/// The in-place sends of a rank, by their floats, which do not overlap. `program`: of this schedule and rank. Each one
/// - sends the rank's own data: no op has written these chunks before;
/// - is the only op that reads this data: later ops read what an op has received or made in its place;
/// - is the first on its channel in a step, and no other lane sends on that channel: so the room that it reserves
///   before the step begins delays nothing, and no message comes between;
/// - has contiguous floats that fit into a ring of `ring_bytes` with the message's header.
std::vector<InPlaceSend> in_place_sends(const schedule::Schedule& schedule, int rank, const Program& program,
                                        const Cut& cut, std::uint64_t ring_bytes);

}  // namespace param_sync::executor
