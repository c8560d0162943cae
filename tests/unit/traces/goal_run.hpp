#pragma once
/// @file Runs GOAL as a simulator would, without times: ops whose dependencies are fulfilled start in random order.

#include "goal_reader.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace traces_test {

/// When a send ends.
enum class Ends {
  at_once,       ///< as in LogGOPSim up to its limit -S
  when_matched,  ///< when its receive has started, too: as in LogGOPSim above the limit, and in ATLAHS always
};

/// An op, by rank and number.
using GoalOpAt = std::pair<std::size_t, std::size_t>;

/// Is told what happens in a run.
class GoalListener {
 public:
  virtual ~GoalListener() = default;
  virtual void started(const GoalOpAt&) {}
  virtual void received(const GoalOpAt& /*send*/, const GoalOpAt& /*recv*/) {}
};

/// What was sent from one rank to another.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// True if both are equal.
  bool operator==(const Traffic&) const = default;
};

/// The result of a run.
struct GoalRun {
  std::string fault;                               ///< why it did not end well: empty if it did
  std::map<std::pair<int, int>, Traffic> traffic;  ///< what was received, by sender and receiver
};

/// Runs it. A fault is: an op that never starts or ends, a message that no op receives, a receive of another size, or
/// two messages that a receive could both take.
/// `last`: an op that starts only if no other one can.
GoalRun run_goal(const std::vector<GoalRank>& goal, Ends ends, unsigned seed, GoalListener& listener,
                 std::optional<GoalOpAt> last = {});
/// The same without a listener.
GoalRun run_goal(const std::vector<GoalRank>& goal, Ends ends, unsigned seed);

}  // namespace traces_test
