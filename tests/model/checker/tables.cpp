#include "tables.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

namespace gpusock::model {
namespace {

namespace fs = std::filesystem;

/// A label at the start of the text: a capital letter and one or two digits. Its length, 0 for none.
std::size_t label_length(const std::string& text, std::size_t at) {
  if (at >= text.size() || std::isupper(static_cast<unsigned char>(text[at])) == 0) return 0;
  std::size_t end = at + 1;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  const bool ends = end == text.size() ||
                    (std::isalnum(static_cast<unsigned char>(text[end])) == 0 && text[end] != '_');
  return end - at >= 2 && end - at <= 3 && ends ? end - at : 0;
}

/// The first label in the line's comment; none where the comment says that the access is relaxed.
std::string label_in_comment(const std::string& line) {
  const std::size_t comment = line.find("// ");
  if (comment == std::string::npos || line.compare(comment, 10, "// relaxed") == 0) return {};
  for (std::size_t at = comment + 3; at < line.size(); ++at) {
    if (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0) continue;
    if (const std::size_t length = label_length(line, at); length != 0) return line.substr(at, length);
  }
  return {};
}

/// Parts of a row: between them are two blanks or more.
std::vector<std::string> columns(const std::string& row) {
  std::vector<std::string> result;
  std::size_t at = 0;
  while ((at = row.find_first_not_of(' ', at)) != std::string::npos) {
    const std::size_t end = std::min(row.find("  ", at), row.size());
    result.push_back(row.substr(at, end - at));
    at = end;
  }
  return result;
}

bool is_orders(const std::string& text) {
  static const std::set<std::string> kOrders = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  std::size_t at = 0;
  for (;;) {
    const std::size_t comma = std::min(text.find(", ", at), text.size());
    if (kOrders.count(text.substr(at, comma - at)) == 0) return false;
    if (comma == text.size()) return true;
    at = comma + 2;
  }
}

bool names(const std::string& orders, Order order) {
  const std::string name = to_string(order);
  const std::size_t at = orders.find(name);
  return at != std::string::npos && (at == 0 || orders[at - 1] == ' ');
}

/// Does this line of code ask for an order that is more than relaxed, or for a fence.
bool asks_for_order(const std::string& line) {
  const std::string code = line.substr(0, line.find("//"));
  for (const char* order : {"kAcquire", "kRelease", "kAcqRel", "cuda::memory_order_acq", "cuda::memory_order_release",
                            "cuda::memory_order_seq_cst"}) {
    if (code.find(order) != std::string::npos && code.find("using ") == std::string::npos &&
        code.find("inline constexpr") == std::string::npos)
      return true;
  }
  return false;
}

}  // namespace

Tables::Tables(const std::string& source_folder) : source_folder_(source_folder) {
  for (const char* folder : {"ringbuf", "socket_table", "host_proxy", "gpusock", "rdma", "param_sync",
                             "apps/param_sync", "tests/support/mlx5"})
    read_folder(folder);
  for (const auto& [file, lines] : files_) read_rows(file, lines);
}

void Tables::read_folder(const std::string& folder) {
  const fs::path root = fs::path(source_folder_) / folder;
  if (!fs::is_directory(root)) {
    throw std::runtime_error("no folder " + root.string() + ": name the project's sources with --source");
  }
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string kind = entry.path().extension();
    if (kind != ".hpp" && kind != ".cpp" && kind != ".cuh" && kind != ".cu" && kind != ".inl") continue;
    Lines& lines = files_[fs::relative(entry.path(), source_folder_).generic_string()];
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
}

void Tables::read_rows(const std::string& file, const Lines& lines) {
  for (const std::string& line : lines) {
    if (line.compare(0, 3, "///") != 0) continue;
    const std::size_t at = line.find_first_not_of(' ', 3);
    if (at == std::string::npos) continue;
    const std::size_t length = label_length(line, at);
    if (length == 0 || line.compare(at + length, 2, "  ") != 0) continue;
    const auto parts = columns(line.substr(at));
    const auto orders = std::find_if(parts.begin(), parts.end(), is_orders);
    if (orders != parts.end()) rows_.push_back({parts[0], file, parts[1], *orders});
  }
}

const Row* Tables::row(const std::string& label) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.label == label; });
  return found == rows_.end() ? nullptr : &*found;
}

/// Compilers may name the file from where they ran.
const Tables::Lines* Tables::lines_of(const Site& site, std::string& file) const {
  for (std::size_t at = 0; at < site.file.size();
       at = site.file.find('/', at) == std::string::npos ? site.file.size() : site.file.find('/', at) + 1) {
    const auto found = files_.find(site.file.substr(at));
    if (found == files_.end()) continue;
    file = found->first;
    return &found->second;
  }
  return nullptr;
}

/// First and last line of the statement around this one.
std::pair<std::size_t, std::size_t> Tables::statement_at(const Lines& lines, std::size_t line) const {
  const auto ends = [&](std::size_t at) {
    const std::string code = lines[at].substr(0, lines[at].find("//"));
    const std::size_t last = code.find_last_not_of(' ');
    return last == std::string::npos || code[last] == ';' || code[last] == '{' || code[last] == '}';
  };
  std::size_t first = line, last = line;
  while (first > 0 && !ends(first - 1)) --first;
  while (last + 1 < lines.size() && !ends(last)) ++last;
  return {first, last};
}

std::string Tables::label_of(const Site& site) const {
  std::string file;
  const Lines* lines = lines_of(site, file);
  if (lines == nullptr || site.line > lines->size()) return {};
  if (std::string label = label_in_comment((*lines)[site.line - 1]); !label.empty()) return label;
  const auto [first, last] = statement_at(*lines, site.line - 1);
  for (std::size_t at = first; at <= last; ++at) {
    if (std::string label = label_in_comment((*lines)[at]); !label.empty()) return label;
  }
  return {};
}

std::string Tables::text_of(const Site& site) const {
  std::string file;
  const Lines* lines = lines_of(site, file);
  if (lines == nullptr || site.line > lines->size()) return {};
  const std::string& line = (*lines)[site.line - 1];
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

std::string Tables::source_of(const Site& site) const {
  std::string file = site.file;
  lines_of(site, file);
  return file + ":" + std::to_string(site.line);
}

std::vector<std::string> Tables::differences(const std::vector<std::string>& unchecked) const {
  std::vector<std::string> result;
  std::set<std::string> reached_rows;
  std::set<std::pair<std::string, std::size_t>> reached_lines;
  for (const Site& site : sites().all()) {
    std::string file;
    const Lines* lines = lines_of(site, file);
    if (lines == nullptr) continue;  // of a test
    const auto [first, last] = statement_at(*lines, site.line - 1);
    for (std::size_t at = first; at <= last; ++at) reached_lines.insert({file, at});
    const std::string label = label_of(site);
    if (site.order == Order::relaxed && site.failure == Order::relaxed) continue;
    const Row* its = row(label);
    if (its == nullptr) {
      result.push_back(source_of(site) + ": " + to_string(site.order) + " " + to_string(site.operation) +
                       " without a label of a table's row");
      continue;
    }
    reached_rows.insert(label);
    if (!names(its->orders, site.order)) {
      result.push_back(source_of(site) + ": " + to_string(site.order) + ", but row " + label + " of " + its->file +
                       " says " + its->orders);
    }
  }
  for (const Row& one : rows_) {
    const bool unchecked_file = std::find(unchecked.begin(), unchecked.end(), one.file) != unchecked.end();
    if (reached_rows.count(one.label) == 0 && !unchecked_file && one.orders != "relaxed") {
      result.push_back(one.file + ": no case reaches row " + one.label + " (" + one.operation + ")");
    }
    if (row(one.label) != &one)
      result.push_back(one.file + ": label " + one.label + " is also in " + row(one.label)->file);
  }
  for (const auto& [file, lines] : files_) {
    if (std::find(unchecked.begin(), unchecked.end(), file) != unchecked.end()) continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (asks_for_order(lines[at]) && reached_lines.count({file, at}) == 0) {
        result.push_back(file + ":" + std::to_string(at + 1) +
                         ": no case reaches this access: " + lines[at].substr(lines[at].find_first_not_of(' ')));
      }
    }
  }
  return result;
}

}  // namespace gpusock::model
