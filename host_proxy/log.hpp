#pragma once
/// @file The library's log: to standard error, at the level of GPUSOCK_LOG (trace, debug, info, warn, error, off).
/// Nothing is logged on the data path.

#include <string>
#include <string_view>

namespace gpusock::proxy {

enum class LogLevel { debug, info, warn, error };

/// True if GPUSOCK_LOG may have this value.
bool is_log_level(std::string_view name);

/// Writes one line, if the level is logged; the default level is warn. An unknown GPUSOCK_LOG leaves the default and is
/// reported once.
void log(LogLevel level, const std::string& line);

inline void log_debug(const std::string& line) { log(LogLevel::debug, line); }
inline void log_info(const std::string& line) { log(LogLevel::info, line); }
inline void log_warn(const std::string& line) { log(LogLevel::warn, line); }
inline void log_error(const std::string& line) { log(LogLevel::error, line); }

}  // namespace gpusock::proxy
