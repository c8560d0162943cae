#pragma once
/// @file How set-up fails: by an exception with the errno and words for people. The data path returns negated errno
/// values.

#include <string>
#include <system_error>

namespace gpusock::rdma {

/// What was tried, where, and what to do about it.
[[noreturn]] inline void fail(int errno_value, const std::string& what_happened) {
  throw std::system_error(errno_value, std::generic_category(), what_happened);
}

}  // namespace gpusock::rdma
