#pragma once
/// @file What each rank does, in the terms of network simulators: messages, computations, and what each waits for.

#include "param_sync/schedule/schedule.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace param_sync::traces {

/// The kinds of tasks.
enum class Kind : std::uint8_t {
  send,     ///< sends a message
  recv,     ///< waits for a message
  compute,  ///< adds, copies in its own memory, or applies the optimizer
};

/// What a task waits for.
struct Dependency {
  int task = 0;           ///< a task of the same rank, an index of its Tasks
  bool on_start = false;  ///< true: until it has started, false: until it has ended
  /// True if all members are equal.
  bool operator==(const Dependency&) const = default;
};

/// One thing that a rank does.
struct Task {
  Kind kind = Kind::send;         ///< what it does
  int lane = 0;                   ///< its lane: of a schedule, or a thread block of a plan
  int peer = schedule::kNobody;   ///< send, recv: the other rank
  std::uint64_t tag = 0;          ///< send, recv: the number of the message among those of its sender to its receiver
  std::uint64_t bytes = 0;        ///< send, recv: size of the message; 0: a signal
  std::uint64_t ns = 0;           ///< compute: nanoseconds
  std::vector<Dependency> after;  ///< what must have happened before it starts
};

/// The tasks of a rank: those of a lane in the order in which they start, lane after lane.
using Tasks = std::vector<Task>;

/// The data that a schedule or a plan moves, and the speed of its additions.
struct Load {
  std::uint64_t floats = 0;     ///< floats of the tensor
  double reduce_bandwidth = 0;  ///< bytes/s that a lane adds, or applies the optimizer to
  /// Returns how long a lane takes for so many bytes, in nanoseconds.
  std::uint64_t compute_ns(std::uint64_t bytes) const {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) / reduce_bandwidth * 1e9));
  }
};

/// Thrown if tasks can be made of other data, but not of these.
class WrongSize : public schedule::Error {
 public:
  using Error::Error;
};

}  // namespace param_sync::traces
