#pragma once
/// @file The GPUSOCK_... variables as a part of a program's arguments: wrong ones are misuse. For programs with
/// kernels.

#include <gpusock/gpusock.hpp>

#include <string>

namespace gpusock::program {

/// What is wrong with the variables that contexts and endpoints read, or nothing. For Arguments::check().
inline std::string problem_of_environment() {
  try {
    Options::from_env();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace gpusock::program
