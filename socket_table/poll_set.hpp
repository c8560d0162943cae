#pragma once
/// @file The words of poll sets, by which a group waits for many sockets at the cost of those that change.
///
/// A set has a ring of slot numbers from the proxy to the group that waits (ringbuf/byte_ring.hpp; rows P1, C1, C2,
/// P2). The proxy is the only writer of what makes most sockets ready. After a change of such a socket it writes the
/// socket's slot into the ring of the set that watches it. The group looks at the slots that it takes from the ring,
/// and at those that were ready when it last looked. Neither the group nor the proxy looks at idle sockets.
///
/// No event is lost: an entry follows each change, and the words of the change come before the entry (P1, C1). A slot
/// whose last entry the group has not taken yet gets no other one. The proxy remembers such a change, and writes the
/// entry once it sees that the earlier one was taken. When the proxy learns that a socket is watched, it writes one
/// entry at once. So the group also sees a change that came before.
///
/// Sockets whose words the peer (p2p) or the NIC (verbs) writes stay marked: the group looks at them in each turn.
///
/// Who writes what:
///   PollSetView::watches   callers → proxy   which set watches a slot's socket; published by T1
///   PollSetWords           see the struct    pinned host memory, 32 bytes a set: all that a waiting group polls. If
///                          the host can store into the GPU's memory (TableMemory), kernels' sets have a second one
///                          there, which kernels poll
///   rings, taken           the two ends of the ring
///   CallerSet              callers only      callers' own memory
// clang-format off
///
/// Ordering table (scope: system)
///   label  operation                order    partner  data protected
///   W1     waker: store wakes       release  W2       what the waker wrote before, as the work that it announces
///   W2     waiter: load wakes       acquire  W1, X1   as W1
///   W3     caller: count out        release  W4       device scope: what the call did in the CallerSet, for its next owner
///   W4     caller: open, close      acquire  W3       as W3; the rest passes by the lock (T7, T8)
// clang-format on

#include "ringbuf/annotations.hpp"
#include "ringbuf/byte_ring.hpp"

#include <cstdint>

namespace gpusock::table {

/// A set's handle is (generation << kSetBits | index); the generation is odd while the set is open.
inline constexpr std::uint32_t kSetBits = 8;
/// How many sets a context has at most.
inline constexpr std::uint32_t kSetsMax = 1u << kSetBits;

GPUSOCK_FN constexpr std::uint32_t index_of_set(std::int32_t set) {
  return static_cast<std::uint32_t>(set) & (kSetsMax - 1);
}
GPUSOCK_FN constexpr std::uint32_t generation_of_set(std::int32_t set) {
  return static_cast<std::uint32_t>(set) >> kSetBits;
}
GPUSOCK_FN constexpr std::int32_t make_set(std::uint32_t index, std::uint32_t generation) {
  return static_cast<std::int32_t>(generation << kSetBits | index);
}

/// All that a waiting group polls of its set, in one 32-byte sector. Each word has one writer.
struct alignas(32) PollSetWords {
  std::uint64_t published = 0;   ///< written by the proxy: the ring's `committed`
  std::uint64_t generation = 0;  ///< written by its caller side: the handle's generation; even while it is closed
  /// Written by host threads (first) and kernels (second): generation << 32 | how often they have woken that
  /// generation.
  std::uint64_t wakes[2] = {};
};

/// Bits of WatchWord::events: the changes that concern the set. Values as in PollEvents, whose other bits only callers
/// use.
inline constexpr std::uint32_t kWatchIn = 0x01, kWatchOut = 0x04;

/// Tells the proxy which set watches a socket: set << 32 | events << 16 | number. Each word of a socket has another
/// number than the one before.
struct WatchWord {
  std::int32_t set = 0;  ///< 0: none
  std::uint16_t events = 0;
  std::uint16_t number = 0;

  GPUSOCK_FN constexpr std::uint64_t pack() const {
    return std::uint64_t{static_cast<std::uint32_t>(set)} << 32 | std::uint64_t{events} << 16 | number;
  }
  GPUSOCK_FN static constexpr WatchWord unpack(std::uint64_t word) {
    return {static_cast<std::int32_t>(word >> 32), static_cast<std::uint16_t>(word >> 16),
            static_cast<std::uint16_t>(word)};
  }
};

/// The callers' state of a watched socket. It is in the socket's CallerSlot, guarded by request_lock.
struct Watch {
  std::int32_t set = 0;  ///< 0: none
  std::int32_t socket = -1;
  std::int32_t events = 0;      ///< PollEvents
  std::uint32_t looked_at = 0;  ///< 1 if the proxy does not see all that makes it ready; the group looks in each turn
  std::uint64_t tag = 0;
  std::uint64_t number = 0;    ///< differs from that of the last watch of this socket
  std::uint64_t reported = 0;  ///< with kPollEdge: sum of the socket's words at its last event; 0: none yet
};

/// An entry of a set's ring: a slot number. It fills a whole word, because a BAR write is of one word.
using SetEntry = std::uint64_t;
inline constexpr std::uint32_t kSetEntriesMax = 256;

/// The callers' own state of one set.
struct alignas(64) CallerSet {
  static constexpr std::uint32_t kWords = 256;  ///< a bit for each slot (kSlotsMax)

  std::uint64_t generation_and_users = 0;  ///< device scope: as in CallerSlot, for calls that use the set
  std::uint64_t lock = 0;     ///< device scope: guards PollSetWords::generation, this caller side's word of `wakes`
  std::uint64_t waiting = 0;  ///< device scope: 1 while a group waits on the set; only that group uses the rest
  ringbuf::ByteConsumer<> changed;    ///< the slots that the proxy has written
  std::uint64_t wakes_seen[2] = {};   ///< PollSetWords::wakes, as last reported
  std::uint64_t next = 0;             ///< the slot at which the next look begins
  std::uint64_t looks = 0;            ///< sockets looked at so far, for tests
  std::uint64_t marked[kWords] = {};  ///< device scope: the slots to look at; watch() marks as well
};

/// One caller side's view of the sets, in its own memory. A caller side can only wake the sets of the other one.
struct PollSetView {
  std::uint64_t* watches = nullptr;  ///< callers' words, by slot: WatchWords, published by `requests`
  PollSetWords* words = nullptr;     ///< in host memory
  PollSetWords* polled = nullptr;    ///< what these callers poll for their own sets: a copy in their memory, or `words`
  /// Only in the host's view: where the host writes the words of kernels' sets for them; nullptr if kernels poll
  /// `words`.
  PollSetWords* bar_words = nullptr;
  SetEntry* entries = nullptr;  ///< the entries of all rings, ring after ring
  /// Only in the host's view: where the host writes the entries of kernels' sets for them.
  SetEntry* bar_entries = nullptr;
  std::uint64_t* taken = nullptr;  ///< callers' words: the rings' `consumed`
  CallerSet* callers = nullptr;    ///< these callers' state; for a set of the others only `lock` is used
  std::uint32_t capacity = 0;      ///< entries that a ring holds
  std::uint32_t count = 0;         ///< number of sets of both caller sides
  std::uint32_t first = 0;         ///< number of these callers' first set
  std::uint32_t own = 0;           ///< how many sets these callers have
  std::uint32_t side = 0;          ///< which of PollSetWords::wakes these callers write

  GPUSOCK_FN bool is_own(std::uint32_t set) const { return set - first < own; }

  /// A set's words, as these callers load and store them.
  GPUSOCK_FN PollSetWords& words_of(std::uint32_t set) const { return is_own(set) ? polled[set] : words[set]; }

  GPUSOCK_FN ringbuf::RingMemory ring(std::uint32_t set) const {
    return {reinterpret_cast<std::byte*>(entries + std::uint64_t{set} * capacity), capacity * sizeof(SetEntry), 0};
  }
};

}  // namespace gpusock::table
