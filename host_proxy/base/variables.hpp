#pragma once
/// @file The environment variables that gpusock, its programs and its scripts read: all of them.

#include <optional>
#include <string>
#include <string_view>

namespace gpusock::proxy {

/// What to tell of a variable, as `NAME=value`: that nothing reads it, and which name was probably meant. Nothing if it
/// is known, or not ours. GPUSOCK_TEST_… belong to the tests, whatever they are.
std::optional<std::string> remark_on_variable(std::string_view variable);

/// Warns of variables that begin with GPUSOCK_ and that nothing reads. Once in a process.
void warn_of_unknown_variables() noexcept;

}  // namespace gpusock::proxy
