#pragma once
/// @file A tiny reader of GOAL, written from the format, not from the code that writes it.

#include <cstdint>
#include <string>
#include <vector>

namespace traces_test {

/// A line such as "l3: recv 1024b from 0 tag 7 cpu 1".
struct GoalOp {
  std::string what;        ///< "send", "recv", "calc"
  std::uint64_t size = 0;  ///< bytes, or time
  int peer = -1;
  std::uint64_t tag = 0;
  int cpu = 0;
  std::vector<std::size_t> ended;    ///< ops of the rank that must have ended before
  std::vector<std::size_t> started;  ///< ops of the rank that must have started before
};

using GoalRank = std::vector<GoalOp>;

/// Reads the text. Throws std::runtime_error with the line if LogGOPSim's reader would not take it: ranks must come in
/// order, and a dependency names labels of lines before it.
std::vector<GoalRank> read_goal(const std::string& text);

}  // namespace traces_test
