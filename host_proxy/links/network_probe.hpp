#pragma once
/// @file Decides when a link sends a probe, to find out whether its network still carries anything. A fabric or a NIC
/// may not report that a write was lost, and a sender that waits for credit writes nothing at all. The TCP connection
/// of the control channel reports a lost network, but only while it has something to deliver: the probe. The peer's
/// operating system acknowledges it, so a peer that is slow, stopped, or does not read is not taken for a lost one.

#include "plain_types/clock.hpp"

#include <algorithm>
#include <cstdint>

namespace gpusock::proxy {

class NetworkProbe {
 public:
  /// The first probe is due after kFirstNs without news. The time to each further one is twice the time before, but at
  /// most kLastNs.
  static constexpr std::uint64_t kFirstNs = 1'000'000'000;
  static constexpr std::uint64_t kLastNs = 64'000'000'000;

  /// True if a probe is due now. `waits`: true if this side waits for the peer. `news`: a number that changes with each
  /// sign of life from the peer.
  bool is_due(std::uint64_t now_ns, bool waits, std::uint64_t news) {
    const bool waited = due_ns_ != detail::kNever;
    if (waits && waited && news == news_ && now_ns < due_ns_) return false;
    const bool due = waits && waited && news == news_;
    news_ = news;
    interval_ns_ = due ? std::min(2 * interval_ns_, kLastNs) : kFirstNs;
    due_ns_ = waits ? detail::later_ns(now_ns, interval_ns_) : detail::kNever;
    return due;
  }

  /// When to call is_due() again; kNever: only after an event.
  std::uint64_t due_ns() const { return due_ns_; }

 private:
  std::uint64_t due_ns_ = detail::kNever;
  std::uint64_t interval_ns_ = kFirstNs;
  std::uint64_t news_ = 0;
};

}  // namespace gpusock::proxy
