#pragma once
/// @file The server: answers the rounds of clients, one client after the other.

#include "options.hpp"

#include <string>

namespace bench {

/// Serves until SIGINT or SIGTERM, or one client with `once`. Tells clients what it runs on. True unless that one
/// client's session failed. Throws Error: it cannot listen.
bool serve(const ServeOptions& options, const std::string& device);

}  // namespace bench
