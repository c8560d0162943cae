#pragma once
/// @file Reads untrusted JSON. Each value knows its path, so that errors name it.

#include "param_sync/schedule/schedule.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace param_sync::schedule {

/// A value in a JsonDocument, which must outlive it. Calls throw Error if it has another type or is out of range.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& document, std::string path)
      : value_(value), document_(document), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& why) const;
  bool has(const char* name) const { return value_.contains(name); }
  JsonNode field(const char* name) const;
  std::size_t size() const;  ///< number of items of an array
  JsonNode item(std::size_t index) const;
  int number(int min, int max) const;  ///< `min` must not be negative
  double real(double min, double max) const;
  std::string text() const;

  /// Returns the value as error messages show it.
  std::string shown() const;

 private:
  void require(bool right, const char* type) const;

  const nlohmann::json& value_;
  const std::string& document_;
  std::string path_;  // such as ranks[2].lanes[0][3]
};

class JsonDocument {
 public:
  /// Throws Error if the text is not JSON or require_parsable() refuses it. Errors begin with `name`: "the schedule".
  JsonDocument(std::string_view text, const std::string& name);

  JsonNode root() const { return {json_, name_, ""}; }

 private:
  std::string name_;
  nlohmann::json json_;
};

}  // namespace param_sync::schedule
