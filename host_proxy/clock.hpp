#pragma once
/// @file The host's clocks.

#include <cstdint>
#include <ctime>

namespace gpusock::proxy {

/// Nanoseconds of one of the operating system's clocks.
inline std::uint64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// By which deadlines and the proxy's steps go, and what observers are told of them.
inline std::uint64_t monotonic_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

/// The time of day, since 1970.
inline std::uint64_t unix_ns() { return read_clock_ns(CLOCK_REALTIME); }

}  // namespace gpusock::proxy
