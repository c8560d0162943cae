#pragma once
/// @file What the simulation's copies of production sources have beside the originals (tests/simulation/plant_bugs.py): bugs, each
/// switched on by its number, and what is one for a whole process in production and here one for each simulated process.

#include <cstdint>

namespace gpusock::sim {

const void* process_key();  ///< differs from one simulated process to the other
std::uint64_t host_key();   ///< equal on one host

inline int planted_bug = 0;

/// Is this one switched on.
inline bool planted(int bug) { return planted_bug == bug; }
/// Switches this one on, and every other off; 0: none.
inline void plant(int bug) { planted_bug = bug; }

extern const int kPlantedBugs;
const char* name_of_bug(int bug);

}  // namespace gpusock::sim
