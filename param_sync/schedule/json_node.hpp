#pragma once
/// @file Reading untrusted JSON: each value knows its path, so that errors name it.

#include "param_sync/schedule/schedule.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace param_sync::schedule {

/// A value in a JsonDocument, which outlives it. Each call throws Error where the value is no such thing.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& document, std::string path)
      : value_(value), document_(document), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& why) const;
  bool has(const char* name) const { return value_.contains(name); }
  JsonNode field(const char* name) const;
  std::size_t size() const;  ///< of an array
  JsonNode item(std::size_t index) const;
  int number(int min, int max) const;  ///< 0 <= min
  double real(double min, double max) const;
  std::string text() const;

  /// The value as it is written in an error.
  std::string shown() const;

 private:
  void require(bool right, const char* type) const;

  const nlohmann::json& value_;
  const std::string& document_;
  std::string path_;  // ranks[2].lanes[0][3]
};

class JsonDocument {
 public:
  /// `name` begins errors: "the schedule". Throws Error where the text is no JSON, or require_parsable() refuses it.
  JsonDocument(std::string_view text, const std::string& name);

  JsonNode root() const { return {json_, name_, ""}; }

 private:
  std::string name_;
  nlohmann::json json_;
};

}  // namespace param_sync::schedule
