#pragma once
/// @file Where the library's log goes in a simulation.

#include <functional>
#include <string>

namespace gpusock::sim {

/// Gets every line, at all levels; empty: nobody does.
inline std::function<void(const std::string& line)> on_log;

}  // namespace gpusock::sim
