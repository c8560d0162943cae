#pragma once
/// @file Checking options before they are used.

#include "gpusock/gpusock.hpp"

namespace gpusock::detail {

/// Throws Error (EINVAL) that names the option that cannot be, and what it may be.
void check(const Options& options);

}  // namespace gpusock::detail
