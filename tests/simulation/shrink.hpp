#pragma once
/// @file Makes a run that fails smaller: fewer connections, fewer faults, fewer bytes.

#include "tests/simulation/plan.hpp"

#include <cstdint>
#include <string>

namespace gpusock::sim {

/// What is left of a seed's plan.
struct Cut {
  std::string connections;                      ///< their numbers, as "0,2"; "": all
  std::string faults;                           ///< the same; "none": none
  std::uint64_t bytes_max = ~std::uint64_t{0};  ///< on each way
};

Plan cut_down(Plan plan, const Cut& cut);

/// The smallest cut found that still fails, in whichever way; `problem` is how it fails now.
Cut shrink(std::uint64_t seed, Cut cut, const std::string& problem);

/// As the program's arguments take it.
std::string to_arguments(const Cut& cut);

}  // namespace gpusock::sim
