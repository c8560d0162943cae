#pragma once
/// @file The places where ranks are or meet, as a launcher's variables say them.

#include "gpusock/endpoint.hpp"

#include <string>

namespace param_sync::bootstrap {

/// Endpoint::parse() of what a launcher's variables say. Throws gpusock::Error: (EINVAL) it is no place; (ENOENT) its
/// name is not known.
gpusock::Endpoint parse_place(const std::string& text);
/// Throws gpusock::Error (EINVAL) where it has no port, by which others could find it.
void need_port(const gpusock::Endpoint& place, const std::string& text);

}  // namespace param_sync::bootstrap
