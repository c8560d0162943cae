#pragma once
/// @file Reads Chakra's traces, as ASTRA-sim does, and gives them the form of GOAL.

#include "goal_reader.hpp"

#include <string>
#include <vector>

namespace traces_test {

/// Reads the bytes of each rank's file. A send whose node "start" others wait for becomes one op, which they wait for
/// until it starts. Throws std::runtime_error where a file is not what ASTRA-sim reads.
std::vector<GoalRank> read_chakra(const std::vector<std::string>& files);

}  // namespace traces_test
