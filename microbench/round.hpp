#pragma once
/// @file The request and the report of one round: plain data that kernels take by value.

#include "bounds.hpp"
#include "ringbuf/annotations.hpp"

#include <gpusock/types.hpp>

#include <cstdint>

namespace bench {

enum class Question : std::uint32_t { latency, bandwidth, connections, rate, scale };

/// One round for messages of one size. Each socket's part ends at `messages_max` messages or after `duration_ns`,
/// whichever comes first. A message of Question::connections is one connection.
struct Job {
  Question question = Question::latency;
  std::uint32_t sockets_out = 1;  ///< bandwidth: sockets on which the asking side sends; scale: 1; else all sockets
  std::uint32_t sockets_in = 0;   ///< bandwidth: sockets on which the answering side sends; else 0
  std::uint64_t bytes = 0;        ///< of one message, at least 1
  std::uint64_t warmup = 0;       ///< messages before the clock starts, all bytes checked
  std::uint64_t warmup_ns = kWarmupMaxNs;  ///< latency, rate: the warm-up ends after this time, even with fewer
                                           ///< messages
  std::uint64_t messages_max = 0;          ///< of each socket, at least 1
  std::uint64_t samples_max = 0;  ///< the asking side's room for each socket's samples: messages_max (bandwidth: 0)
  std::uint64_t window = 1;       ///< rate: messages of each socket that are on their way at a time
  std::uint32_t crowd = 0;        ///< scale: sockets that exist, all of one group
  std::uint32_t turns = 0;        ///< scale: how many of them are in use, by turns
  std::uint64_t duration_ns = 0;
  std::uint64_t limit_ns = 0;  ///< a round that takes longer has failed
  std::uint64_t token = 0;     ///< by which the answering side recognizes this round's connections

  /// How many groups a side has. All but those of Question::scale have one socket each.
  GPUSOCK_FN constexpr std::uint32_t sockets() const { return sockets_out + sockets_in; }
  GPUSOCK_FN constexpr std::uint32_t connections() const { return crowd != 0 ? crowd : sockets(); }
};

/// What a side was doing when it failed. Step::greet: it has closed a connection that is none of this round's.
enum class Step : std::uint32_t { none, connect, accept, send, receive, start, finish, greet };
inline constexpr std::uint32_t kSteps = 8;

/// The account of one side of one socket, written by its group's leader.
struct Account {
  Step failed_step = Step::none;
  std::int64_t result = 0;        ///< of the failed step: a negated errno, or a count that is too small
  std::uint64_t messages = 0;     ///< number of timed messages
  std::uint64_t started_ns = 0;   ///< when the first timed message started, by the side's own clock
  std::uint64_t elapsed_ns = 0;   ///< from then to the last one's acknowledgement
  std::uint64_t wrong_words = 0;  ///< device scope: all threads of the group add to it
  std::uint64_t more = 0;         ///< how the leader tells the group whether to go on
};

GPUSOCK_FN constexpr std::uint64_t words_of(std::uint64_t bytes) { return (bytes + 7) / 8; }

/// Bytes of a greeting: the round's token, the socket's index, and zeros up to a cache line. So the messages after it
/// begin where cache lines begin. Otherwise a message of 64 bytes would share both of its lines with its neighbours.
inline constexpr std::uint64_t kGreetingBytes = 64;

/// Number of words in a message's buffer, which also has room for the greeting.
GPUSOCK_FN constexpr std::uint64_t buffer_words(std::uint64_t bytes) {
  return words_of(bytes < kGreetingBytes ? kGreetingBytes : bytes);
}

/// What a group of Question::scale keeps of its sockets from round to round.
struct CrowdState {
  static constexpr int kEventsMax = 32;

  std::uint64_t open = 0;  ///< how many of Job::crowd are connected
  std::int32_t set = -1;   ///< the answering side's poll set
  gpusock::PollEvent events[kEventsMax];
};

/// The sockets of a group of Question::scale.
struct Crowd {
  CrowdState* state = nullptr;
  std::int32_t* sockets = nullptr;  ///< Job::crowd of them, in the order in which the asking side connects them
};

/// One group's buffers.
struct Memory {
  std::uint64_t* out = nullptr;
  std::uint64_t* in = nullptr;
  std::uint64_t* samples_ns = nullptr;  ///< on the asking side: Job::samples_max words
  Account* account = nullptr;
  std::uint64_t* gate = nullptr;  ///< where the groups of the asking side wait for one another; nullptr: they do not
  Crowd crowd{};                  ///< Question::scale, which has one group
};

/// The buffers of all groups of a side: one after the other in each array.
struct SideMemory {
  Memory first;

  GPUSOCK_FN Memory of(std::uint32_t index, const Job& job) const {
    const std::uint64_t words = buffer_words(job.bytes) * index;
    return {first.out + words,
            first.in + words,
            first.samples_ns == nullptr ? nullptr : first.samples_ns + job.samples_max * index,
            first.account + index,
            first.gate,
            first.crowd};
  }
};

}  // namespace bench
