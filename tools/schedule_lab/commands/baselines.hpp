#pragma once
/// @file Other libraries' all-reduce beside ours.

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::commands {

/// What --beside takes: names of baselines, and "all".
std::vector<std::string> beside_choices();

/// The baselines that are meant by a choice; none where it is empty.
std::vector<std::string> baselines_of(const std::string& choice);

/// What a baseline is called in tables: "MPI".
std::string title_of(const std::string& baseline);

/// Throws schedule::Error where a program that baseline_s() runs is missing, and says which. To ask before a table
/// begins.
void require_baseline(const std::string& baseline);

/// The median seconds of this baseline's all-reduce of floats, between so many processes of this machine. Runs a
/// program that lies beside this one where the library was found when it was built. `link`: of "mpi", "tcp" is Open
/// MPI's tcp, everything else what Open MPI takes itself; Gloo has tcp only. Throws schedule::Error: what is missing.
double baseline_s(const std::string& baseline, int nodes, const std::string& link, std::uint64_t bytes, int repeats);

}  // namespace param_sync::commands
