#include "host_proxy/base/log.hpp"

#include "plain_types/clock.hpp"
#include "host_proxy/base/log_limiter.hpp"
#include "host_proxy/base/standard_error.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>

namespace gpusock::proxy {

bool is_log_level(std::string_view name) {
  static constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error", "off"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

namespace {

/// Used with the log's lock held.
class StandardErrorSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    error_.write({line.data(), line.size()});
  }
  void flush_() override {}

  StandardError error_;
};

spdlog::logger* make_logger() {
  // Not registered with spdlog: the program's own loggers stay its own. Never destroyed: kernels may outlive main().
  auto* logger = new spdlog::logger("gpusock", std::make_shared<StandardErrorSink>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e gpusock[%P] %l: %v");
  logger->set_level(spdlog::level::warn);
  if (const char* name = std::getenv("GPUSOCK_LOG"); name != nullptr && *name != '\0') {
    if (is_log_level(name)) {
      logger->set_level(spdlog::level::from_str(name));
    } else {
      logger->warn("GPUSOCK_LOG='{}' is not one of trace, debug, info, warn, error, off; logging at warn", name);
    }
  }
  return logger;
}

spdlog::level::level_enum level_of(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

/// The log that all threads use.
struct Log {
  Log() {
    // A child of fork() has only the thread that forked: no other thread may hold the lock at that time.
    pthread_atfork([] { instance().lock.lock(); }, [] { instance().lock.unlock(); },
                   [] {
                     instance().limiter.forget();
                     instance().lock.unlock();
                   });
    std::atexit([] { instance().write_rest(); });
  }
  static Log& instance() {
    static Log* log = new Log;  // never destroyed, like the logger
    return *log;
  }

  void write(const LogLimiter::Lines& lines) {
    for (const LogLimiter::Line& line : lines) logger->log(level_of(line.level), line.text);
  }
  /// Writes what was counted and not written yet. Writes nothing if the lock is taken: a signal handler may have called
  /// exit().
  void write_rest() noexcept try {
    const std::unique_lock locked(lock, std::try_to_lock);
    if (!locked) return;
    write(limiter.rest());
  } catch (const std::exception&) {
    return;
  }

  std::mutex lock;
  spdlog::logger* logger = make_logger();
  LogLimiter limiter;
};

}  // namespace

void log(LogLevel level, const std::string& line, const CodeLine& kind) try {
  const spdlog::level::level_enum its_level = level_of(level);
  Log& log = Log::instance();
  if (!log.logger->should_log(its_level)) return;
  const std::lock_guard lock(log.lock);
  if (level < LogLevel::warn) {  // GPUSOCK_LOG asks for all of them
    log.logger->log(its_level, line);
    return;
  }
  const std::uint64_t now_ns = detail::monotonic_ns();
  const auto lines = log.limiter.admit(kind, level, line, now_ns);
  log.write(log.limiter.overdue(now_ns));
  log.write(lines);
} catch (const std::bad_alloc&) {  // the line is lost
}

}  // namespace gpusock::proxy
