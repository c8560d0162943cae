#pragma once
/// @file What the simulation's copies of production sources have beside the originals (tests/simulation/plant_bugs.py):
/// bugs, each switched on by its number, and what is one for a whole process in production and here one for each
/// simulated process.

#include <cstdint>
#include <functional>
#include <memory>

namespace gpusock::sim {

const void* process_key();  ///< differs from one simulated process to the other
std::uint64_t host_key();   ///< equal on one host

/// What the running process keeps under this key until its run is over; made when it is asked for first.
std::shared_ptr<void>& kept_by_process(const void* key);
/// The one of its kind in the running process.
template <class Kind>
Kind& for_process() {
  static const char key = 0;
  std::shared_ptr<void>& kept = kept_by_process(&key);
  if (kept == nullptr) kept = std::make_shared<Kind>();
  return *static_cast<Kind*>(kept.get());
}

/// A thread that runs this when the schedule has it run. Throws std::system_error where no thread is to be had.
void start_thread(std::function<void()> body);
/// The running process waits for one of its threads unless this is over: it would wait for ever where none is left.
void wait_for_thread(bool over);

inline int planted_bug = 0;

/// Is this one switched on.
inline bool planted(int bug) { return planted_bug == bug; }
/// Switches this one on, and every other off; 0: none.
inline void plant(int bug) { planted_bug = bug; }

extern const int kPlantedBugs;
/// Which runs show a bug: plain seeds, or seeds that are denied one allocation, or system call, after the other.
enum class BugShows { in_seeds, in_memory, in_calls };
struct PlantedBug {
  const char* name;
  BugShows where;
};
const PlantedBug& planted_bug_of(int number);  ///< from 1

}  // namespace gpusock::sim
