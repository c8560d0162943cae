#pragma once
/// @file What one round is asked and what it reports: plain data that kernels take by value.

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace bench {

enum class Question : std::uint32_t { latency, bandwidth };

/// One round for messages of one size. It ends at `messages_max` messages or `duration_ns`, whichever comes first.
struct Job {
  Question question = Question::latency;
  std::uint64_t bytes = 0;         ///< of one message, at least 1
  std::uint64_t warmup = 0;        ///< messages before the clock starts, all bytes checked
  std::uint64_t messages_max = 0;  ///< at least 1; latency: no more than Memory::samples holds
  std::uint64_t duration_ns = 0;
  std::uint64_t limit_ns = 0;  ///< a round that takes longer has failed
};

/// What a side was doing when it failed.
enum class Step : std::uint32_t { none, connect, accept, send, receive, finish };

/// One side's account of a round, written by its group's leader.
struct Account {
  Step failed_step = Step::none;
  std::int64_t result = 0;        ///< of the failed step: a negated errno, or a count that is too small
  std::uint64_t messages = 0;     ///< timed ones
  std::uint64_t elapsed_ns = 0;   ///< from the first timed message's start to the last one's acknowledgement
  std::uint64_t wrong_words = 0;  ///< device scope: all threads of the group add to it
  std::uint64_t more = 0;         ///< how the leader tells the group whether to go on
};

/// One side's buffers, where its group reaches them. Messages are whole words: one word more than the bytes need.
struct Memory {
  std::uint64_t* out = nullptr;
  std::uint64_t* in = nullptr;
  std::uint64_t* samples_ns = nullptr;  ///< latency, on the measuring side: messages_max words
  Account* account = nullptr;
};

GPUSOCK_FN constexpr std::uint64_t words_of(std::uint64_t bytes) { return (bytes + 7) / 8; }

}  // namespace bench
