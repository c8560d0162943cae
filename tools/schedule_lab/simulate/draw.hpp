#pragma once
/// @file A schedule as a picture.

#include "param_sync/schedule/schedule.hpp"

#include <string>

namespace param_sync::simulate {

/// An SVG: ranks down, time across, an arrow for each message; time is that of a network in which a chunk, and the way
/// of a message, take one unit each. `title` is written above.
std::string draw(const schedule::Schedule& schedule, const std::string& title);

}  // namespace param_sync::simulate
