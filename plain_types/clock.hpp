#pragma once
/// @file The host's clocks, and points in time.

#include "ringbuf/annotations.hpp"

#include <cstdint>
#include <ctime>

namespace gpusock::detail {

/// Nanoseconds of one of the operating system's clocks.
inline std::uint64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The clock of deadlines and of the proxy's steps, and of the times that observers see.
inline std::uint64_t monotonic_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

/// The time of day, since 1970.
inline std::uint64_t unix_ns() { return read_clock_ns(CLOCK_REALTIME); }

/// The time that stands for never.
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// The time `duration_ns` after `time_ns`; kNever if that is later than any time there is.
GPUSOCK_FN constexpr std::uint64_t later_ns(std::uint64_t time_ns, std::uint64_t duration_ns) {
  return duration_ns < kNever - time_ns ? time_ns + duration_ns : kNever;
}

}  // namespace gpusock::detail
