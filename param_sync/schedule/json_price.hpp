#pragma once
/// @file Computes how much memory a JSON text takes once it is parsed, before it is parsed. Three characters, `{},`,
/// can take 112 bytes.

#include <cstdint>
#include <string>
#include <string_view>

namespace param_sync::schedule {

inline constexpr std::uint64_t kParsedBytesMax = std::uint64_t{1} << 30;

/// Returns an upper bound, in bytes, of the memory that the values of a text take as nlohmann::json. If the text is not
/// JSON, the bound holds for the part that a parser reads before it fails.
std::uint64_t parsed_bytes(std::string_view text);

/// Throws Error if parsed_bytes(text) is more than kParsedBytesMax. The error begins with `name`: "the schedule".
void require_parsable(std::string_view text, const std::string& name);

}  // namespace param_sync::schedule
