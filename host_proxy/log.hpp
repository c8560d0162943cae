#pragma once
/// @file The library's log: to standard error, at the level of GPUSOCK_LOG (trace, debug, info, warn, error, off).
/// Nothing is logged on the data path.

#include <spdlog/logger.h>

namespace gpusock::proxy {

/// The logger; the default level is warn. An unknown GPUSOCK_LOG leaves the default and says so once.
spdlog::logger& log();

}  // namespace gpusock::proxy
