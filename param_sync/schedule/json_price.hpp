#pragma once
/// @file How much memory a JSON text takes once it is parsed: known before it is. Three characters, `{},`, take 110
/// bytes.

#include <cstdint>
#include <string>
#include <string_view>

namespace param_sync::schedule {

inline constexpr std::uint64_t kParsedBytesMax = std::uint64_t{1} << 30;

/// An upper bound of what the values of a text take as nlohmann::json, in bytes. Also of a text that is no JSON, as far
/// as a parser gets.
std::uint64_t parsed_bytes(std::string_view text);

/// Throws Error where that is more than kParsedBytesMax. `name` begins the error: "the schedule".
void require_parsable(std::string_view text, const std::string& name);

}  // namespace param_sync::schedule
