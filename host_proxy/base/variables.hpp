#pragma once
/// @file All environment variables that gpusock, its programs and its scripts read.

#include <optional>
#include <string>
#include <string_view>

namespace gpusock::proxy {

/// The remark on a variable (`NAME=value`) that nothing reads: it says so, and names the one that was probably meant.
/// Returns nothing if the variable is known, or not gpusock's. All names GPUSOCK_TEST_… are known: they are for tests.
std::optional<std::string> remark_on_variable(std::string_view variable);

/// Warns of variables that begin with GPUSOCK_ and that nothing reads. Once in a process.
void warn_of_unknown_variables() noexcept;

}  // namespace gpusock::proxy
