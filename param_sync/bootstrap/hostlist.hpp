#pragma once
/// @file Lists of hosts as Slurm writes them.

#include <string>
#include <string_view>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr std::size_t kHostsMax = 65536;  ///< a list of more is refused

/// The hosts of a list, in its order: names with commas, where each may hold ranges in brackets, as in
/// "login,rack[0-1]node[01-03,7]". Numbers keep their width. Throws gpusock::Error (EINVAL) that shows what cannot be.
std::vector<std::string> expand_hosts(std::string_view list);

}  // namespace param_sync::bootstrap
