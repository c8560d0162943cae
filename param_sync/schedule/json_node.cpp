#include "param_sync/schedule/json_node.hpp"

#include "param_sync/schedule/json_price.hpp"

#include <fmt/format.h>

namespace param_sync::schedule {

void JsonNode::refuse(const std::string& why) const {
  throw Error(fmt::format("{}{}{}: {}", document_, path_.empty() ? "" : ", ", path_, why));
}

void JsonNode::require(bool right, const char* type) const {
  if (!right) refuse(fmt::format("is {}, not {}", shown(), type));
}

std::string JsonNode::shown() const {
  constexpr std::size_t kShownMax = 40;
  if (value_.is_structured()) return value_.is_array() ? "an array" : "an object";
  std::string text = value_.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownMax) text.replace(kShownMax, std::string::npos, "...");
  return text;
}

JsonNode JsonNode::field(const char* name) const {
  require(value_.is_object(), "an object");
  const auto found = value_.find(name);
  if (found == value_.end()) refuse(fmt::format("\"{}\" is missing", name));
  return {*found, document_, path_.empty() ? name : path_ + "." + name};
}

std::size_t JsonNode::size() const {
  require(value_.is_array(), "an array");
  return value_.size();
}

JsonNode JsonNode::item(std::size_t index) const {
  return {value_[index], document_, fmt::format("{}[{}]", path_, index)};
}

int JsonNode::number(int min, int max) const {
  require(value_.is_number_integer(), "a whole number");
  const auto number = value_.is_number_unsigned() ? value_.get<std::uint64_t>() : ~std::uint64_t{0};  // else negative
  if (number < static_cast<std::uint64_t>(min) || number > static_cast<std::uint64_t>(max)) {
    refuse(min == max ? fmt::format("is {}, not {}", shown(), min)
                      : fmt::format("is {}, not {} to {}", shown(), min, max));
  }
  return static_cast<int>(number);
}

double JsonNode::real(double min, double max) const {
  require(value_.is_number(), "a number");
  const auto number = value_.get<double>();
  if (!(number >= min && number <= max)) refuse(fmt::format("is {}, not {} to {}", shown(), min, max));
  return number;
}

std::string JsonNode::text() const {
  require(value_.is_string(), "a string");
  return value_.get<std::string>();
}

JsonDocument::JsonDocument(std::string_view text, const std::string& name) : name_(name) {
  require_parsable(text, name_);
  try {
    json_ = nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {  // parse_error, or out_of_range for a number
    throw Error(fmt::format("{} is no JSON: {}", name_, error.what()));
  }
}

}  // namespace param_sync::schedule
