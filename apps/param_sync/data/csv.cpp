#include "data/csv.hpp"

#include <algorithm>
#include <stdexcept>

namespace param_sync {

/// Takes a field that begins with a quote, and what follows up to the next comma or the end of the line.
std::string CsvReader::quoted_field() {
  std::string field;
  for (std::size_t at = 1;; ++at) {
    if (at >= left_.size()) throw std::invalid_argument("a quote is not closed");
    if (left_[at] == '\n') ++next_line_;
    if (left_[at] != '"') {
      field += left_[at];
    } else if (at + 1 < left_.size() && left_[at + 1] == '"') {
      field += left_[at++];
    } else {
      left_.remove_prefix(at + 1);
      return field;
    }
  }
}

std::string CsvReader::plain_field() {
  const std::string_view field = left_.substr(0, left_.find_first_of(",\r\n"));
  left_.remove_prefix(field.size());
  const std::size_t end = field.find_last_not_of(" \t");
  return std::string(end == std::string_view::npos ? "" : field.substr(0, end + 1));
}

std::optional<std::vector<std::string>> CsvReader::next() {
  const auto skip = [&](std::string_view what) {
    left_.remove_prefix(std::min(left_.find_first_not_of(what), left_.size()));
  };
  for (; !left_.empty() && (left_.front() == '\n' || left_.front() == '\r'); left_.remove_prefix(1)) {
    if (left_.front() == '\n') ++next_line_;
  }
  if (left_.empty()) return std::nullopt;
  line_ = next_line_;
  std::vector<std::string> fields;
  for (;;) {
    skip(" \t");
    fields.push_back(!left_.empty() && left_.front() == '"' ? quoted_field() : plain_field());
    skip(" \t\r");
    if (left_.empty()) return fields;
    const char then = left_.front();
    left_.remove_prefix(1);
    if (then == '\n') {
      ++next_line_;
      return fields;
    }
    if (then != ',') throw std::invalid_argument("text follows a field in quotes");
  }
}

}  // namespace param_sync
