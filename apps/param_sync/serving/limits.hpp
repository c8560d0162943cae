#pragma once
/// @file The limits of a server, for its command line and its kernel.

namespace param_sync::serving {

inline constexpr unsigned kCohortMax = 256;  ///< requests of a cohort
inline constexpr unsigned kBlocksMax = 6;  ///< each may read a version of the weights of its own (Snapshots::kSlotsMax)

}  // namespace param_sync::serving
