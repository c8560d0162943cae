#pragma once
/// @file The server: answers the rounds of clients, one client after the other.

#include "options.hpp"

#include <string>

namespace bench {

/// Serves clients until SIGINT or SIGTERM, or only one client if `once` is set. Tells clients that it runs on `device`.
/// False if that one client's session failed. Throws program::SocketFailure if it cannot listen.
bool serve(const ServeOptions& options, const std::string& device);

}  // namespace bench
