#pragma once
/// @file Divides the text of a CSV file into records and fields.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace param_sync {

/// Reads comma-separated values as RFC 4180 has them: a field may be in quotes, and then hold commas, line breaks, and
/// quotes that are written twice. Lines end in LF or CR LF. Empty lines are skipped, and so are blanks around a field
/// without quotes.
class CsvReader {
 public:
  /// `text` outlives the reader.
  explicit CsvReader(std::string_view text) : left_(text) {}

  /// Returns the fields of the next record, or nothing at the end. Throws std::invalid_argument, whose text says what
  /// is wrong with the record in line().
  std::optional<std::vector<std::string>> next();
  /// The line in which the last record begins, from 1.
  std::size_t line() const { return line_; }

 private:
  std::string quoted_field();
  std::string plain_field();

  std::string_view left_;
  std::size_t line_ = 0, next_line_ = 1;
};

}  // namespace param_sync
