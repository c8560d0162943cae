#include "host_proxy/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>

namespace gpusock::proxy {

bool is_log_level(std::string_view name) {
  static constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error", "off"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

namespace {

spdlog::logger* make_logger() {
  // Not registered with spdlog: the program's own loggers stay its own. Never destroyed: kernels may outlive main().
  auto* logger = new spdlog::logger("gpusock", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e gpusock[%P] %l: %v");
  logger->set_level(spdlog::level::warn);
  logger->flush_on(spdlog::level::trace);
  if (const char* name = std::getenv("GPUSOCK_LOG"); name != nullptr && *name != '\0') {
    if (is_log_level(name)) {
      logger->set_level(spdlog::level::from_str(name));
    } else {
      logger->warn("GPUSOCK_LOG='{}' is not one of trace, debug, info, warn, error, off; logging at warn", name);
    }
  }
  return logger;
}

}  // namespace

void log(LogLevel level, const std::string& line) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  static spdlog::logger* logger = make_logger();
  logger->log(kLevels[static_cast<int>(level)], line);
}

}  // namespace gpusock::proxy
