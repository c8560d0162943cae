#pragma once
/// @file What gpusock-top prints: a table for people, or JSON.

#include "gpusock/tools/top/observation.hpp"

#include <cstddef>
#include <string>

namespace gpusock::top {

/// "0", "999", "1.2K", "34M": at most four characters and a unit of 1000.
std::string short_number(double value);
/// "3.2s", "4m10s", "2h05m".
std::string short_time(std::uint64_t ns);

/// The table, a line per context and one per socket. `unix_ns` is the time of day.
std::string make_table(const Look& look, std::uint64_t unix_ns);

/// The first `rows` lines of text, each cut to `columns` characters.
std::string cut(const std::string& text, std::size_t rows, std::size_t columns);

/// One JSON object; over several lines, or on one.
std::string make_json(const Look& look, std::uint64_t unix_ns, bool several_lines);

}  // namespace gpusock::top
