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

/// The order of a context's sockets: by `socket` and `peer` the smallest comes first, else the largest.
enum class Sort { socket, peer, rate, bytes, fill, stalled, age, retransmits };

struct TableOptions {
  std::size_t columns = 0;  ///< of a line, at most; 0: any number. A line of less than kWideColumns omits some fields
  std::size_t rows = 0;     ///< lines of the whole table; 0: any number
  std::size_t limit = 0;    ///< sockets of each context; 0: any number
  Sort sort = Sort::socket;
  bool details = false;  ///< a second line for each socket, as `ss -i` has
};

/// A line of at least so many columns has all fields.
inline constexpr std::size_t kWideColumns = 132;

/// Makes the table, with a line for each context and each socket. `unix_ns` is the time of day. Contexts and sockets
/// for which there is no room are counted.
std::string make_table(const Look& look, std::uint64_t unix_ns, const TableOptions& options = {});

/// Makes what a window of `rows` lines shows of a table: the titles, the line of the context to which line `first`
/// below the titles belongs, and the lines from there on. The top line says which lines these are.
std::string make_window(const std::string& table, std::size_t first, std::size_t rows);
/// How many lines a table has below its titles, and how many of them a window shows at once.
std::size_t lines_below_titles(const std::string& table);
std::size_t room_in_window(const std::string& table, std::size_t rows);

/// The first `rows` lines of text, each cut to `columns` characters.
std::string cut(const std::string& text, std::size_t rows, std::size_t columns);

/// Makes one JSON object, on several lines or on one.
std::string make_json(const Look& look, std::uint64_t unix_ns, bool several_lines);

}  // namespace gpusock::top
