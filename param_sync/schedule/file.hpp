#pragma once
/// @file Reads and writes schedules as JSON. docs/schedules.md has the format.

#include "param_sync/schedule/schedule.hpp"

#include <string>
#include <string_view>

namespace param_sync::schedule {

/// Returns the schedule that a JSON text describes. Throws Error, which names the field, if the text is not JSON, has
/// another version or would take more than 1 GiB, or if a field is missing, has another type or is out of range.
Schedule from_json(std::string_view text);

/// Returns a schedule as JSON text, one op on each line. from_json() reads the same schedule again.
std::string to_json(const Schedule& schedule);

/// Returns an untrusted name in a form that any terminal can print: characters that are not printable ASCII are
/// escaped, and text after the first 64 characters is replaced by "...".
std::string printable(const std::string& name);

/// Returns the contents of a file ("-": standard input). Throws Error if it cannot be read or has more than 128 MiB.
std::string read_text(const std::string& file);

}  // namespace param_sync::schedule
