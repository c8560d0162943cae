#pragma once
/// @file Finds the address by which other hosts reach this one.

#include "gpusock/endpoint.hpp"

namespace param_sync::bootstrap {

/// Returns the address from which this host would send to distant hosts. If there is none, returns the address of its
/// first network interface that is up; if there is none, loopback. The port is 0.
gpusock::Endpoint local_address();

}  // namespace param_sync::bootstrap
