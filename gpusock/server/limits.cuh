#pragma once
/// @file The limits of serve().

#include "gpusock/device.cuh"

namespace gpusock {

/// The limits of serve() for its clients. The largest number means no limit.
struct ServerLimits {
  std::uint64_t idle_timeout_ns = 60'000'000'000;     ///< a client is reset if no byte moves to or from it
                                                      ///< for this long. One that only receives is not idle.
                                                      ///< Not 0, and at most 12 days (or no limit)
  std::uint64_t request_timeout_ns = 10'000'000'000;  ///< how long the rest of a request that has begun, and taking
                                                      ///< the answer, may take; then the connection is closed
  std::uint64_t displace_after_ns = 1'000'000'000;    ///< if all seats are taken, a client with no request
                                                      ///< answered for this long makes room for a new one
  std::uint64_t farewell_ns = 1'000'000'000;          ///< how long a client may take to end after its last answer
  std::uint64_t group_start_ns = 10'000'000'000;      ///< how long after its own start group 0 waits for seats of
                                                      ///< groups that have not begun, before it takes seats from
                                                      ///< idle clients; and how long the others wait for group 0
};

namespace detail {

/// Returns the idle timeout as SocketOption::idle_timeout_ns takes it; 0 if it is invalid.
GPUSOCK_FN inline std::int64_t idle_option_ns(const ServerLimits& limits) {
  constexpr std::uint64_t kMostNs = std::uint64_t{table::SocketOptions::kIdleMsMax} * 1'000'000;
  if (limits.idle_timeout_ns == ~std::uint64_t{0}) return -1;
  return limits.idle_timeout_ns > kMostNs ? 0 : static_cast<std::int64_t>(limits.idle_timeout_ns);
}

}  // namespace detail

}  // namespace gpusock
