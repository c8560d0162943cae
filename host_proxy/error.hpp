#pragma once
/// @file The exception that set-up on the host throws.

#include <cerrno>
#include <string>
#include <system_error>

namespace gpusock {

/// What went wrong while setting something up on the host: what was tried, where, and what to do about it.
/// `code()` holds the errno. The data path never throws; it returns negated errno values.
class Error : public std::system_error {
 public:
  /// An errno and what was tried, where, and what to do.
  Error(int errno_value, const std::string& what_happened)
      : std::system_error(errno_value, std::generic_category(), what_happened) {}
};

}  // namespace gpusock
