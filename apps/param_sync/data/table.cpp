#include "data/table.hpp"

#include "data/csv.hpp"
#include "data/gzip_reader.hpp"
#include "data/npy.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>

namespace param_sync {
namespace {

constexpr std::size_t kColumnsMax = std::size_t{1} << 20;

/// The number that a whole text is, if it is one.
std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

bool is_number(const std::string& text) { return number_of(text).has_value(); }

/// Builds a table, row by row.
class TableMaker {
 public:
  explicit TableMaker(const std::filesystem::path& file) : file_(file) {}

  /// `where`: the line or row, for messages.
  [[noreturn]] void refuse(const std::string& where, const std::string& why) const {
    refuse_data(file_, where + ": " + why + ".");
  }

  /// Says how many columns a row has, with that of the class. All rows have as many.
  void begin_row(const std::string& where, std::size_t columns) {
    if (columns < 2 || columns > kColumnsMax) {
      refuse(where, std::to_string(columns) +
                        " columns, divided by commas, and not 2 to 2^20: numbers, and in the last one the class");
    }
    if (table_.columns == 0) table_.columns = static_cast<std::uint32_t>(columns - 1);
    if (columns != table_.columns + std::size_t{1}) {
      refuse(where,
             std::to_string(columns) + " columns, and the rows before have " + std::to_string(table_.columns + 1));
    }
  }

  void add(const std::string& where, double value) {
    const auto stored = static_cast<float>(value);
    if (!std::isfinite(stored)) refuse(where, "a number that is not finite, or too large");
    table_.values.push_back(stored);
  }

  void end_row(const std::string& where, const std::string& of_class) {
    if (of_class.empty()) refuse(where, "the class, in the last column, is empty");
    names_.push_back(of_class);
    known_.insert(of_class);
  }

  /// Numbers the classes.
  Table made() {
    if (names_.empty()) refuse_data(file_, "it has no rows of numbers.");
    if (known_.size() < 2 || known_.size() > Table::kClassesMax) {
      refuse("the last column", std::to_string(known_.size()) +
                                    " different values, and not 2 to 256: it says to which class a row belongs");
    }
    table_.classes.assign(known_.begin(), known_.end());
    if (std::all_of(known_.begin(), known_.end(), is_number)) sort_numbers();
    for (const std::string& name : names_) {
      const auto at = std::find(table_.classes.begin(), table_.classes.end(), name);
      table_.labels.push_back(static_cast<std::uint8_t>(at - table_.classes.begin()));
    }
    return std::move(table_);
  }

 private:
  /// Classes whose names are numbers.
  void sort_numbers() {
    for (const std::string& name : known_) {
      if (std::trunc(*number_of(name)) == *number_of(name)) continue;
      refuse("the last column",
             "'" + name.substr(0, 40) + "' is no whole number: it says to which class a row belongs");
    }
    std::sort(table_.classes.begin(), table_.classes.end(),
              [](const auto& a, const auto& b) { return *number_of(a) < *number_of(b); });
    const auto is_same = [](const auto& a, const auto& b) { return *number_of(a) == *number_of(b); };
    if (const auto same = std::adjacent_find(table_.classes.begin(), table_.classes.end(), is_same);
        same != table_.classes.end()) {
      refuse("the last column", *same + " and " + *(same + 1) + " are one number: write it in one way");
    }
  }

  const std::filesystem::path& file_;
  Table table_;
  std::vector<std::string> names_;  // by row
  std::set<std::string> known_;
};

void read_csv(std::string_view text, TableMaker& table) {
  CsvReader reader(text);
  const auto line = [&] { return "line " + std::to_string(reader.line()); };
  try {
    bool is_first = true;
    while (const auto fields = reader.next()) {
      const auto numbers_end = fields->end() - 1;
      const bool names_columns = is_first && std::none_of(fields->begin(), numbers_end, is_number);
      is_first = false;
      table.begin_row(line(), fields->size());
      if (names_columns) continue;
      for (auto field = fields->begin(); field != numbers_end; ++field) {
        const auto number = number_of(*field);
        if (!number) {
          table.refuse(line(), "'" + field->substr(0, 40) + "' in column " +
                                   std::to_string(field - fields->begin() + 1) + " is no number");
        }
        table.add(line(), *number);
      }
      table.end_row(line(), fields->back());
    }
  } catch (const std::invalid_argument& problem) {
    table.refuse(line(), problem.what());
  }
}

void read_array(std::string_view content, TableMaker& table) {
  NpyArray array;
  try {
    array = read_npy(content);
  } catch (const std::invalid_argument& problem) {
    table.refuse("NumPy array", problem.what());
  }
  for (std::size_t row = 0; row < array.rows; ++row) {
    const std::string where = "row " + std::to_string(row);
    table.begin_row(where, array.columns);
    const double* const values = array.values.data() + row * array.columns;
    for (std::size_t column = 0; column + 1 < array.columns; ++column) table.add(where, values[column]);
    const double of_class = values[array.columns - 1];
    if (std::trunc(of_class) != of_class || std::abs(of_class) > 1e9) {
      table.refuse(where, "the class, in the last column, is no whole number");
    }
    table.end_row(where, std::to_string(static_cast<long long>(of_class)));
  }
}

}  // namespace

Table read_table(const std::filesystem::path& file) {
  const std::string content = GzipReader(file).read_all();
  TableMaker table(file);
  if (is_npy(content)) {
    read_array(content, table);
  } else {
    read_csv(content, table);
  }
  return table.made();
}

}  // namespace param_sync
