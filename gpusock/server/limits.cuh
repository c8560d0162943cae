#pragma once
/// @file The limits of serve().

#include "gpusock/device.cuh"

namespace gpusock {

/// The limits that serve() sets its clients. The largest number means none.
struct ServerLimits {
  std::uint64_t idle_timeout_ns = 60'000'000'000;     ///< a client is reset after so long without a byte to
                                                      ///< or from it: one that only listens is not idle. Not 0,
                                                      ///< and at most 12 days (or none)
  std::uint64_t request_timeout_ns = 10'000'000'000;  ///< for the rest of a request once it has begun, and for the
                                                      ///< client to take the answer; then its connection is closed
  std::uint64_t displace_after_ns = 1'000'000'000;    ///< where all seats are taken: a client without an answered
                                                      ///< request for so long makes room for a new one
  std::uint64_t farewell_ns = 1'000'000'000;          ///< for the client to end its side after the last answer
  std::uint64_t group_start_ns = 10'000'000'000;      ///< for the groups to begin: group 0 keeps new clients waiting
                                                      ///< for the others' seats so long after it began, and the others
                                                      ///< wait for group 0 so long after they began
};

namespace detail {

/// The idle timeout as the sockets' option has it; 0 if it cannot be set.
GPUSOCK_FN inline std::int64_t idle_option_ns(const ServerLimits& limits) {
  constexpr std::uint64_t kMostNs = std::uint64_t{table::SocketOptions::kIdleMsMax} * 1'000'000;
  if (limits.idle_timeout_ns == ~std::uint64_t{0}) return -1;
  return limits.idle_timeout_ns > kMostNs ? 0 : static_cast<std::int64_t>(limits.idle_timeout_ns);
}

}  // namespace detail

}  // namespace gpusock
