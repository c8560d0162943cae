#pragma once
/// @file Helpers for the arguments of programs with kernels: the names of the links, and a check of the GPUSOCK_...
/// variables (an invalid one is misuse).

#include <gpusock/gpusock.hpp>

#include <string>
#include <vector>

namespace gpusock::program {

/// The choices of an option --link.
inline std::vector<std::string> link_names() { return {"auto", "p2p", "verbs", "fabric", "tcp"}; }

/// What is wrong with the variables that contexts and endpoints read, or an empty text. For Arguments::check().
inline std::string problem_of_environment() {
  try {
    Options::from_env();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace gpusock::program
