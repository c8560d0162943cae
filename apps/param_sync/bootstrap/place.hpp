#pragma once
/// @file The places where nodes are or meet, as a launcher's variables say them.

#include "gpusock/endpoint.hpp"

#include <string>

namespace param_sync {

/// Endpoint::parse() of what a launcher's variables say; throws gpusock::program::Misuse where it is none.
gpusock::Endpoint parse_place(const std::string& text);
/// Throws gpusock::program::Misuse where it has no port, by which others could find it.
void need_port(const gpusock::Endpoint& place, const std::string& text);

}  // namespace param_sync
