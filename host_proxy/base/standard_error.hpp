#pragma once
/// @file Writes to standard error, and never waits.

#include <cstdint>
#include <string>

namespace gpusock::proxy {

/// Writes lines to descriptor 2. A line for which a pipe, terminal or socket has no room is dropped and counted: a
/// program that reads standard error slowly, or not at all, must not stop the proxy. Not thread-safe.
class StandardError {
 public:
  /// `line` ends with a newline. A line that is longer than a pipe takes in one piece is cut.
  void write(std::string line);

 private:
  std::uint64_t dropped_ = 0;  // lines since the last one that was written
};

}  // namespace gpusock::proxy
