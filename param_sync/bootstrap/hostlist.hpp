#pragma once
/// @file Expands lists of hosts as Slurm writes them.

#include <string>
#include <string_view>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr std::size_t kHostsMax = 65536;  ///< most hosts of a list

/// Returns the hosts of a list, in its order. The list has names with commas between them, each with any ranges in
/// brackets: "login,rack[0-1]node[01-03,7]". Numbers keep their width. Throws gpusock::Error (EINVAL) if it is invalid.
std::vector<std::string> expand_hosts(std::string_view list);

}  // namespace param_sync::bootstrap
