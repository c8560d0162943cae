#pragma once
/// @file The exception that set-up on the host throws.

#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

namespace gpusock {

/// An errno in words, with its name: "Connection refused (ECONNREFUSED)". A number that is not an errno has no name.
inline std::string describe_errno(int errno_value) {
  const char* const name = errno_value == 0 ? nullptr : strerrorname_np(errno_value);
  return std::generic_category().message(errno_value) + (name == nullptr ? "" : std::string(" (") + name + ")");
}

/// What went wrong while setting something up on the host: what was tried, where, and what to do about it.
/// `code()` holds the errno. The data path never throws; it returns negated errno values.
class Error : public std::system_error {
 public:
  /// An errno and what was tried, where, and what to do. what() ends with describe_errno().
  Error(int errno_value, const std::string& what_happened)
      : Error(errno_value, std::runtime_error(what_happened + ": " + describe_errno(errno_value))) {}

  /// An errno, and a message that says the cause itself: what() is the message.
  static Error with_cause(int errno_value, const std::string& message) {
    return Error(errno_value, std::runtime_error(message));
  }

  /// The message.
  const char* what() const noexcept override { return text_.what(); }

 private:
  Error(int errno_value, const std::runtime_error& text)
      : std::system_error(errno_value, std::generic_category()), text_(text) {}

  std::runtime_error text_;  // copying it does not throw
};

/// The errno of an exception: the code of a std::system_error, or ENOMEM for any other exception.
inline int errno_of(const std::exception& exception) noexcept {
  const auto* error = dynamic_cast<const std::system_error*>(&exception);
  return error != nullptr && error->code().value() != 0 ? error->code().value() : ENOMEM;
}

}  // namespace gpusock
