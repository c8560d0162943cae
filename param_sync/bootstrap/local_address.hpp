#pragma once
/// @file By which address other hosts reach this one.

#include "gpusock/endpoint.hpp"

namespace param_sync::bootstrap {

/// The address from which this host would send to far hosts, else that of its first network interface that is up;
/// loopback where it has none. The port is 0.
gpusock::Endpoint local_address();

}  // namespace param_sync::bootstrap
