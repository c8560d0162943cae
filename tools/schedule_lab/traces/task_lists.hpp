#pragma once
/// @file Tasks that are made in any order, before their numbers are known.

#include "traces/tasks.hpp"

#include <cstddef>
#include <vector>

namespace param_sync::traces {

/// A dependency on a task of the same rank, by lane and by its place there.
struct TaskRef {
  int lane = 0;
  int index = 0;
  bool on_start = false;  ///< true: until it has started, false: until it has ended
  /// The order of lanes, then of tasks.
  auto operator<=>(const TaskRef&) const = default;
};

/// What a task waits for.
using Waits = std::vector<TaskRef>;

/// Adds what is not there.
void join(Waits& waits, const Waits& others);

/// The tasks of all ranks, by lane.
class TaskLists {
 public:
  explicit TaskLists(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  /// Adds a task to Task::lane of the rank. Returns the dependency on its end. Throws schedule::Error if tasks or
  /// dependencies are more than we write.
  TaskRef add(int rank, Task task, Waits waits);

  /// Numbers the tasks of each rank, lane after lane, and returns them.
  std::vector<Tasks> finish();

 private:
  struct Listed {
    Task task;
    Waits waits;
  };

  std::vector<std::vector<std::vector<Listed>>> ranks_;  // by rank, lane
  std::size_t size_ = 0;                                 // tasks and dependencies
};

}  // namespace param_sync::traces
