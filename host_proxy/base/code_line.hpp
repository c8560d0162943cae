#pragma once
/// @file A line of code, as in std::source_location, which Clang 14 does not have with GCC 12's library.

namespace gpusock::proxy {

/// The line of code that called a function which has this as a default argument.
class CodeLine {
 public:
  static constexpr CodeLine current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr CodeLine(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_;
  unsigned line_;
};

}  // namespace gpusock::proxy
