#pragma once
/// @file Who held a run up that no longer moves: what each node knows when it has waited for too long, and all
/// together.
///
/// All wait for each other in a step, so where one node stops, all others wait: most of them for nodes that only wait,
/// too. Which of its waits a node gives up first is chance. So it tells all that it lacks, and the earliest part that
/// anybody lacks decides: who owes that one waits for nothing that is still to come.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// How far a node has come with each other one. A *part* is one layer's in one step; parts are counted in the order in
/// which they are pushed. All by rank; a node's entries for itself mean nothing.
struct Standing {
  int rank = -1;                        ///< the node that tells
  std::vector<std::uint64_t> gathered;  ///< parts of gradients that have come from the other, whole
  std::vector<std::uint64_t> pulled;    ///< parts of weights that have come from the other, whole
  std::vector<std::uint64_t> pushing;   ///< 2 * part + 1 while that part's gradients go to the other; else even
};

nlohmann::json to_json(const Standing& standing);
Standing standing_from(const nlohmann::json& json);

/// The earliest part that nodes lack, and a wait for it.
struct Stall {
  enum class Wait { gradients, weights, room };
  Wait wait = Wait::gradients;  ///< of the wait: for what. room: for the other to take gradients
  int waiting = -1;             ///< of the wait: who
  int waited_for = -1;          ///< of the wait: for whom
  std::uint64_t part = 0;
  std::vector<int> suspects;  ///< one: who held the run up. Several: at least one of them; it cannot be known which.
                              ///< Ascending
  bool suspect_told = false;  ///< the only suspect has told where it stands, so that it runs
};

/// What the nodes that have told (at least one, of at least two) know together about all `nodes`.
Stall find_stall(const std::vector<Standing>& told, int nodes);

/// As a message of the one that started the nodes: who held the run up, how that is known, and what to do.
std::string describe(const Stall& stall, int layers, double timeout_s);

/// As the message of one node that knows only its own standing, and so cannot tell who else waits.
std::string describe_alone(const Standing& standing, int layers, double timeout_s);

}  // namespace param_sync
