#pragma once
/// @file Errors of set-up: exceptions with an errno and a text for the user. The data path returns negated errnos.

#include <string>
#include <system_error>

namespace gpusock::rdma {

/// Throws std::system_error. `what_happened` says what was tried, where, and what to do about it.
[[noreturn]] inline void fail(int errno_value, const std::string& what_happened) {
  throw std::system_error(errno_value, std::generic_category(), what_happened);
}

}  // namespace gpusock::rdma
