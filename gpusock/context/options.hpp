#pragma once
/// @file Checking options before they are used.

#include "gpusock/gpusock.hpp"

namespace gpusock::detail {

/// Throws Error (EINVAL) that names an invalid option and its valid values.
void check(const Options& options);

}  // namespace gpusock::detail
