#pragma once
/// @file Times other libraries' all-reduces, for comparison with ours.

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::commands {

/// Returns the values that --beside takes: names of baselines, and "all".
std::vector<std::string> beside_choices();

/// Returns the baselines of a choice; none if it is empty.
std::vector<std::string> baselines_of(const std::string& choice);

/// Returns a baseline's name in tables, such as "MPI".
std::string title_of(const std::string& baseline);

/// Throws schedule::Error, which names the program, if one that baseline_s() runs is missing. Call it before a table is
/// printed.
void require_baseline(const std::string& baseline);

/// Returns the median seconds of this baseline's all-reduce of floats between so many processes of this machine. Runs a
/// program in this program's folder; the build makes it if it finds the library. For "mpi", `link` "tcp" means Open
/// MPI's tcp, and others what Open MPI takes itself; Gloo has only tcp. Throws schedule::Error if the program fails.
double baseline_s(const std::string& baseline, int nodes, const std::string& link, std::uint64_t bytes, int repeats);

}  // namespace param_sync::commands
