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

/// Which sockets of a context come first. By `socket` and `peer` the smallest; else the largest.
enum class Sort { socket, peer, rate, bytes, fill, stalled, age, retransmits };

struct TableOptions {
  std::size_t columns = 0;  ///< that a line has at most; 0: any number. With less than kWideColumns some columns go
  std::size_t rows = 0;     ///< lines of the whole table; 0: any number
  std::size_t limit = 0;    ///< sockets of each context; 0: any number
  Sort sort = Sort::socket;
  bool details = false;  ///< a second line for each socket, as `ss -i` has
};

/// From so many columns on a line has all that it can have.
inline constexpr std::size_t kWideColumns = 132;

/// The table, a line per context and one per socket. `unix_ns` is the time of day. Of contexts and sockets for which
/// there is no room it says how many there are.
std::string make_table(const Look& look, std::uint64_t unix_ns, const TableOptions& options = {});

/// A table as a window of `rows` lines shows it: its titles, the line of the context that line number `first` below
/// them belongs to, and the lines from there on. The first line says which these are.
std::string make_window(const std::string& table, std::size_t first, std::size_t rows);
/// How many lines a table has below its titles, and how many of them a window shows at once.
std::size_t lines_below_titles(const std::string& table);
std::size_t room_in_window(const std::string& table, std::size_t rows);

/// The first `rows` lines of text, each cut to `columns` characters.
std::string cut(const std::string& text, std::size_t rows, std::size_t columns);

/// One JSON object; over several lines, or on one.
std::string make_json(const Look& look, std::uint64_t unix_ns, bool several_lines);

}  // namespace gpusock::top
