#pragma once
/// @file LookPace decides when a receiver on a CPU looks at its ring again, so that one look finds several messages.
///
/// A look takes the cache line of the producer's word away from the producer's processor. The producer's next commit
/// waits until the line is back. A receiver that is faster than its sender would look once for each message, and so
/// make the sender slower still. Network cards hold back interrupts for the same reason
/// (docs/decisions/027-looks-between-cores.md).

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace gpusock::ringbuf {

/// One receiver's pace. It is plain data that starts as zeros: the receiver then looks at once. Only the leader of the
/// receiving group uses it.
class LookPace {
 public:
  /// A wait is short if one of its first kShortLooks looks found the bytes.
  static constexpr std::uint64_t kShortLooks = 2;
  /// A look that finds this many bytes pays for itself.
  static constexpr std::uint64_t kManyBytes = 4 << 10;
  /// After this many short waits for few bytes, the peer counts as one that sends a stream of small messages. Three
  /// kinds of wait take this many off the count: a long wait, a wait in which no second message gathered, and a wait
  /// before which this side has sent, as the bytes may be the answer.
  static constexpr std::uint32_t kShortWaits = 4;
  /// How long a receiver lets bytes of a stream gather, ns. The number of turns bounds the wait where the clock stands
  /// still, as in simulated time.
  static constexpr std::uint64_t kGatherNs = 2'000;
  static constexpr int kGatherTurnsMax = 256;

  struct Wait {
    std::uint64_t looks;  ///< how many looks found too few bytes
    std::uint64_t found;  ///< bytes that the last look found
    std::uint64_t most;   ///< bytes that the caller takes at most
    std::uint64_t sent;   ///< the position up to which the same side has sent on this socket
  };
  /// Call it when a wait has ended because bytes have come.
  void note_wait(const Wait& wait) {
    const bool may_be_answer = wait.sent != sent_;
    const bool gathered_nothing = streams() && wait.found <= wait.most;
    sent_ = wait.sent;
    if (may_be_answer || gathered_nothing || wait.looks > kShortLooks) {
      short_waits_ -= short_waits_ < kShortWaits ? short_waits_ : kShortWaits;
    } else if (wait.found < kManyBytes && short_waits_ < 2 * kShortWaits) {
      ++short_waits_;
    }
  }

  /// True if bytes should gather before the next look.
  bool streams() const { return short_waits_ >= kShortWaits; }

  /// Lets bytes gather if that pays. `clock_ns()` is the caller's clock.
  template <class Clock>
  void before_look(Clock clock_ns) const {
    if (!streams()) return;
    const std::uint64_t started_ns = clock_ns();
    for (int turn = 0; turn < kGatherTurnsMax && clock_ns() - started_ns < kGatherNs; ++turn) pause();
  }

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::uint64_t sent_ = 0;
  std::uint32_t short_waits_ = 0;
};

}  // namespace gpusock::ringbuf
