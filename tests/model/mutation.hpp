#pragma once
/// @file Does every order that the tables ask for matter: each is weakened, and a case must notice.

#include "checker/run.hpp"
#include "checker/tables.hpp"

#include <vector>

namespace gpusock::model {

/// Prints row, place, mutant and what caught it; how many survived (or were let off without need).
int try_mutants(const std::vector<Case>& cases, const Tables& tables, const Limits& limits);

}  // namespace gpusock::model
