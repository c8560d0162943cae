#pragma once
/// @file When a link asks whether its network still carries anything. A fabric or a NIC may not report
/// that a write was lost, and a sender that waits for credit writes nothing at all. The TCP connection of the
/// control channel reports a lost network, but only while it has something to deliver: a probe. The peer's operating
/// system acknowledges it, so a peer that is slow, stopped, or does not read is not taken for a lost one.

#include "plain_types/clock.hpp"

#include <algorithm>
#include <cstdint>

namespace gpusock::proxy {

class NetworkProbe {
 public:
  /// The first probe is due after this long without news; each further one after twice as long as the one before it, up
  /// to kLastNs.
  static constexpr std::uint64_t kFirstNs = 1'000'000'000;
  static constexpr std::uint64_t kLastNs = 64'000'000'000;

  /// True if a probe is due now. `waits`: this side waits for the peer; `news`: a number that each sign of the peer
  /// changes.
  bool is_due(std::uint64_t now_ns, bool waits, std::uint64_t news) {
    const bool waited = due_ns_ != detail::kNever;
    if (waits && waited && news == news_ && now_ns < due_ns_) return false;
    const bool due = waits && waited && news == news_;
    news_ = news;
    interval_ns_ = due ? std::min(2 * interval_ns_, kLastNs) : kFirstNs;
    due_ns_ = waits ? detail::later_ns(now_ns, interval_ns_) : detail::kNever;
    return due;
  }

  /// When to ask is_due() again; kNever: only when something has happened.
  std::uint64_t due_ns() const { return due_ns_; }

 private:
  std::uint64_t due_ns_ = detail::kNever;
  std::uint64_t interval_ns_ = kFirstNs;
  std::uint64_t news_ = 0;
};

}  // namespace gpusock::proxy
