#pragma once
/// @file Reads the addresses of ranks, and the address where they meet, that a launcher's variables give.

#include "gpusock/endpoint.hpp"

#include <string>

namespace param_sync::bootstrap {

/// Endpoint::parse() of an address from a launcher's variables. Throws gpusock::Error: EINVAL if it is no address,
/// ENOENT if its host name is unknown.
gpusock::Endpoint parse_address(const std::string& text);
/// Throws gpusock::Error (EINVAL) if `address` has no port: other ranks could not find it. `text` is for the message.
void need_port(const gpusock::Endpoint& address, const std::string& text);

}  // namespace param_sync::bootstrap
