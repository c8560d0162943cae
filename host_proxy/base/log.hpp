#pragma once
/// @file The library's log: to standard error, at the level of GPUSOCK_LOG (trace, debug, info, warn, error, off).
/// Nothing is logged on the data path, and logging never waits: lines for which standard error has no room are dropped
/// (standard_error.hpp).

#include "host_proxy/base/code_line.hpp"

#include <exception>
#include <string>
#include <string_view>

namespace gpusock::proxy {

enum class LogLevel { debug, info, warn, error };

/// True if GPUSOCK_LOG may have this value.
bool is_log_level(std::string_view name);

/// Writes one line, if the level is logged; the default level is warn. An unknown GPUSOCK_LOG leaves the default and is
/// reported once. In each second, at most ten warnings and errors of one line of code are written, and equal ones only
/// once (log_limiter.hpp). A later line, or one at the program's end, says how many were not written.
void log(LogLevel level, const std::string& line, const CodeLine& kind);

inline void log_debug(const std::string& line, const CodeLine& kind = CodeLine::current()) {
  log(LogLevel::debug, line, kind);
}
inline void log_info(const std::string& line, const CodeLine& kind = CodeLine::current()) {
  log(LogLevel::info, line, kind);
}
inline void log_warn(const std::string& line, const CodeLine& kind = CodeLine::current()) {
  log(LogLevel::warn, line, kind);
}
inline void log_error(const std::string& line, const CodeLine& kind = CodeLine::current()) {
  log(LogLevel::error, line, kind);
}

/// Logs the line that `make` returns; logs nothing if there is no memory for it. For places that must not fail.
template <class Make>
void try_log(LogLevel level, Make make, const CodeLine& kind = CodeLine::current()) noexcept {
  try {
    log(level, make(), kind);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace gpusock::proxy
