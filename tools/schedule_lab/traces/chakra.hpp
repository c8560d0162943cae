#pragma once
/// @file Schedules as Chakra execution traces (Sridharan et al., 2023), which ASTRA-sim reads.

#include "traces/tasks.hpp"

#include <string>
#include <vector>

namespace param_sync::traces {

/// True if this build writes Chakra's traces: it has protobuf.
bool writes_chakra();

/// Returns the bytes of each rank's file: messages of protobuf, each after its length. Tasks are nodes. In a trace a
/// node waits only for the end of others. So a send that others wait for until it starts has a node before it, which
/// computes for no time, and they wait for that one. Times are rounded to microseconds, the format's unit; signals have
/// 1 byte. A rank without tasks computes for no time. Throws Error if this build has no protobuf.
std::vector<std::string> to_chakra(const std::vector<Tasks>& ranks);

}  // namespace param_sync::traces
