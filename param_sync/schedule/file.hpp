#pragma once
/// @file Schedules as JSON: docs/schedules.md.

#include "param_sync/schedule/schedule.hpp"

#include <string>
#include <string_view>

namespace param_sync::schedule {

/// The schedule that a text describes. Throws Error, which names the field: text that is no JSON, another version, a
/// field that is missing or has another type, a number out of range, so many values that they take more than 1 GiB.
Schedule from_json(std::string_view text);

/// The text of a schedule: one op a line. from_json() gives the same schedule again.
std::string to_json(const Schedule& schedule);

/// A name that others gave, as it can be printed on any terminal: characters that are not printable ASCII are escaped,
/// and what has more than 64 characters is cut.
std::string printable(const std::string& name);

/// The contents of a file ("-": standard input). Throws Error where it cannot be read, or has more than 128 MiB.
std::string read_text(const std::string& file);

}  // namespace param_sync::schedule
