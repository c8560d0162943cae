#pragma once
/// @file Proves that a schedule is correct, or says what is wrong with it.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::schedule {

/// Totals of what one rank sends to another.
struct Edge {
  int from = 0;                ///< the rank that sends
  int to = 0;                  ///< the rank that receives
  std::uint64_t messages = 0;  ///< messages, signals included
  std::uint64_t chunks = 0;    ///< chunks in all messages
  /// True if all members are equal.
  bool operator==(const Edge&) const = default;
};

/// The work of one rank, in chunks.
struct Work {
  std::uint64_t sent = 0;              ///< chunks that it sends
  std::uint64_t received = 0;          ///< chunks that it receives
  std::uint64_t reduced = 0;           ///< received chunks that it adds
  std::uint64_t reads = 0;             ///< chunks read from its own memory (arriving chunks are read from the ring)
  std::uint64_t writes = 0;            ///< chunks written to its own memory
  std::uint64_t messages_reduced = 0;  ///< messages whose chunks it adds
  int sending_levels = 0;              ///< number of levels at which it sends
  int reducing_levels = 0;             ///< number of levels at which it adds
  /// True if all members are equal.
  bool operator==(const Work&) const = default;
};

/// The costs of a schedule.
struct Counts {
  int depth = 0;            ///< length of the longest chain of messages, each sent after the one before it arrived
  std::vector<Edge> edges;  ///< edges that carry messages, sorted by `from`, then `to`
  std::vector<Work> ranks;  ///< work, by rank

  std::uint64_t chunks_sent() const;      ///< chunks that all ranks send together
  std::uint64_t chunks_sent_max() const;  ///< chunks that the busiest rank sends
};

/// Runs the schedule with symbols instead of data: for each chunk at each rank, how often it holds each rank's
/// contribution. Throws Error if
/// - validate() refuses it,
/// - it ends with anything but its `result`, or leaves a message that no rank receives,
/// - it deadlocks if each channel's ring holds one chunk (a schedule that ends with such rings also ends with larger
///   ones, since lanes wait only for messages, room in rings and each other),
/// - a message meets an op that expects other chunks,
/// - the result depends on timing: two ops of a rank use a chunk, one of them writes it, and neither lanes, `after` nor
///   messages order them; or two ops without an order send, or receive, on one channel,
/// - it is too large to be checked.
Counts check(const Schedule& schedule);

}  // namespace param_sync::schedule
