#pragma once
/// @file Does every order that the tables ask for matter: each is weakened, and a case must notice.

#include "checker/run.hpp"
#include "checker/tables.hpp"

#include <map>
#include <vector>

namespace gpusock::model {

/// Which cases reach a line.
using Users = std::map<const Site*, std::vector<const Case*>>;

/// Prints row, source line, mutant and what caught it, and at last "mutants: 56/56 caught"; false if one survived, or
/// if a row has none.
bool try_mutants(const Users& users, const Tables& tables, const Limits& limits);

}  // namespace gpusock::model
