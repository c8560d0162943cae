#include "param_sync/bootstrap/hostlist.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>

namespace param_sync::bootstrap {
namespace {

[[noreturn]] void refuse_list(std::string_view list, const std::string& why) {
  throw gpusock::Error(EINVAL, "the list of hosts \"" + std::string(list) + "\": " + why);
}

/// Splits `text` at the commas outside brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (depth < 0 || depth > 1) refuse_list(text, "its brackets do not match");
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  if (depth != 0) refuse_list(text, "its brackets do not match");
  parts.push_back(text.substr(start));
  return parts;
}

std::size_t number_from(std::string_view text, std::string_view list) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    refuse_list(list, "\"" + std::string(text) + "\" is no number");
  return number;
}

std::string padded(std::size_t number, std::size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

/// Expands ranges such as "01-03,7" into numbers as names contain them.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split_outside_brackets(ranges)) {
    const std::size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const std::size_t first = number_from(from, list);
    const std::size_t last = dash == std::string_view::npos ? first : number_from(range.substr(dash + 1), list);
    if (last < first) refuse_list(list, "\"" + std::string(range) + "\" runs backwards");
    if (last - first >= kHostsMax) refuse_list(list, "it names more than " + std::to_string(kHostsMax) + " hosts");
    for (std::size_t number = first; number <= last; ++number) numbers.push_back(padded(number, from.size()));
  }
  return numbers;
}

/// Returns the names of one entry, which may have any number of brackets. The numbers of the first one change slowest.
std::vector<std::string> expand_entry(std::string_view entry, std::string_view list) {
  std::vector<std::string> names{""};
  while (!entry.empty()) {
    const std::size_t open = entry.find('[');
    for (std::string& name : names) name += entry.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = entry.find(']', open);
    const auto numbers = expand_ranges(entry.substr(open + 1, close - open - 1), list);
    if (numbers.size() * names.size() > kHostsMax)
      refuse_list(list, "it names more than " + std::to_string(kHostsMax) + " hosts");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view entry : split_outside_brackets(list)) {
    if (entry.empty()) refuse_list(list, "it has an empty name");
    for (std::string& host : expand_entry(entry, list)) hosts.push_back(std::move(host));
    if (hosts.size() > kHostsMax) refuse_list(list, "it names more than " + std::to_string(kHostsMax) + " hosts");
  }
  return hosts;
}

}  // namespace param_sync::bootstrap
