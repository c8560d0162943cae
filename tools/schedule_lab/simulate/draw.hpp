#pragma once
/// @file Draws a schedule as a picture.

#include "param_sync/schedule/schedule.hpp"

#include <string>

namespace param_sync::simulate {

/// Returns an SVG with ranks from top to bottom, time from left to right and an arrow for each message. It shows times
/// on a network in which sending a chunk takes one unit and the latency is one unit. `title` is written above.
std::string draw(const schedule::Schedule& schedule, const std::string& title);

}  // namespace param_sync::simulate
