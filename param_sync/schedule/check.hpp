#pragma once
/// @file Proves a schedule right, or says what is wrong with it.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::schedule {

/// What one rank sends another, in all.
struct Edge {
  int from = 0;                ///< the rank that sends
  int to = 0;                  ///< the rank that receives
  std::uint64_t messages = 0;  ///< signals included
  std::uint64_t chunks = 0;    ///< in all messages
  /// Equal members.
  bool operator==(const Edge&) const = default;
};

/// What one rank does, in chunks.
struct Work {
  std::uint64_t sent = 0;              ///< chunks that it sends
  std::uint64_t received = 0;          ///< chunks that it receives
  std::uint64_t reduced = 0;           ///< of those received: were added
  std::uint64_t reads = 0;             ///< of the rank's own memory; what arrives is read from the ring
  std::uint64_t writes = 0;            ///< of the rank's own memory
  std::uint64_t messages_reduced = 0;  ///< messages whose chunks were added
  int sending_rounds = 0;              ///< in how many rounds it sends
  int reducing_rounds = 0;             ///< and adds
  /// Equal members.
  bool operator==(const Work&) const = default;
};

/// What a schedule costs.
struct Counts {
  int rounds = 0;           ///< the longest chain of messages, each of which is sent after the one before it arrived
  std::vector<Edge> edges;  ///< that carry anything; by `from`, then `to`
  std::vector<Work> ranks;  ///< by rank

  std::uint64_t chunks_sent() const;      ///< by all ranks
  std::uint64_t chunks_sent_max() const;  ///< by the rank that sends most
};

/// Runs the schedule with symbols for data: of each chunk at each rank, how often it holds each rank's contribution.
/// Throws Error where
/// - a number is out of range (validate()),
/// - it ends with anything but its `result`, or leaves a message that no rank receives,
/// - it does not end where each channel's ring holds one chunk (then it ends with larger rings as well: lanes wait for
///   nothing but messages, room in rings and each other),
/// - a message meets an op that expects other chunks,
/// - the result depends on timing: two ops of a rank use a chunk, one of them writes it, and neither lanes, `after` nor
///   messages order them; or two ops without an order send, or receive, on one channel,
/// - it is too large to be checked.
Counts check(const Schedule& schedule);

}  // namespace param_sync::schedule
