#pragma once
/// @file How a lane that fails finds out which rank is lost, by last words (last_words.cuh), and tells the peers. One
/// thread makes each call.

#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/last_words.cuh"

#include <cerrno>

namespace param_sync::executor {

/// What a peer has said becomes what this rank says.
__device__ inline void take_word(const LastWord& word, int rank, ExecutionFailure& what) {
  using Why = LastWord::Why;
  what.lost = word.rank;
  what.blame = Blame::unknown;
  if (word.why == Why::lost) what.blame = word.rank == rank ? Blame::this_rank : Blame::told;
  if (word.why == Why::protocol) what.blame = word.rank == rank ? Blame::this_rank : Blame::told_of_schedule;
  if (word.why == Why::argument) what.blame = Blame::told_of_argument;
}

/// True if a rank has told which one is lost: any but `except`, and by now.
__device__ inline bool was_told(const LastWords& words, int except, ExecutionFailure& what) {
  LastWord word;
  const int channel = words.hear_told(except, word);
  if (channel < 0) return false;
  what.channel = channel;
  take_word(word, words.rank, what);
  return true;
}

/// A peer's connection has ended, or nothing came of it in time: finds out whether it is the lost rank. It hears what
/// the peer has to say, which may have to find out in turn, and what other ranks have told.
__device__ inline void find_lost(const LastWords& words, std::uint64_t timeout_ns, ExecutionFailure& what) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  constexpr std::uint64_t kPatienceMinNs = 100'000'000;
  constexpr std::uint64_t kFindingOutNs = 3 * kPatienceNs;  // the peer's patience, twice, and more
  const int peer = words.channels[what.channel].peer;
  const bool late = what.error == ETIMEDOUT;
  std::uint64_t patience_ns = kPatienceNs;
  if (late) {
    if (was_told(words, peer, what)) return;
    words.speak({.why = LastWord::Why::waits, .rank = peer});
    patience_ns = timeout_ns < kPatienceMinNs ? kPatienceMinNs : timeout_ns < kPatienceNs ? timeout_ns : kPatienceNs;
  }
  LastWord word;
  std::int64_t heard = words.listen(peer, word, patience_ns);
  const bool waits = heard > 0 && word.why == LastWord::Why::waits;
  const bool each_other = waits && word.rank == words.rank;
  if (waits && !each_other) heard = words.listen(peer, word, kFindingOutNs);
  what.blame = Blame::unknown;
  if (heard > 0 && !each_other) {
    take_word(word, words.rank, what);
  } else if (heard == 0 || (heard == -ECONNRESET && !late)) {  // late: what was said to it may have reset it
    if (!waits) what.blame = Blame::peer;
  }
  if (what.blame != Blame::unknown || was_told(words, -1, what)) return;
  if (late && heard == -ETIMEDOUT && !waits && !words.answers(peer)) what.blame = Blame::silent_peer;
}

/// What is to be told of a failure.
__device__ inline LastWord word_of(const ExecutionFailure& what, int peer) {
  using Why = LastWord::Why;
  if (what.kind == ExecutionFailureKind::message) return {.why = Why::protocol, .rank = peer};
  if (what.blame == Blame::peer || what.blame == Blame::silent_peer) return {.why = Why::lost, .rank = peer};
  if (what.blame == Blame::told) return {.why = Why::lost, .rank = what.lost};
  if (what.blame == Blame::told_of_schedule) return {.why = Why::protocol, .rank = what.lost};
  if (what.kind == ExecutionFailureKind::argument || what.blame == Blame::told_of_argument) {
    return {.why = Why::argument, .rank = what.lost};
  }
  return {};
}

/// Finds out whom this failure is about, and tells the peers.
__device__ __noinline__ inline void exchange_last_words(const LastWords& words, std::uint64_t timeout_ns,
                                                        ExecutionFailure& what) {
  if (!words.exist()) return;
  const bool of_peer = what.kind == ExecutionFailureKind::receive || what.kind == ExecutionFailureKind::send;
  const bool ended = what.error == 0 || what.error == ECONNRESET || what.error == EPIPE || what.error == ETIMEDOUT;
  if (of_peer && ended) find_lost(words, timeout_ns, what);
  words.speak(word_of(what, what.channel < 0 ? -1 : words.channels[what.channel].peer));
}

}  // namespace param_sync::executor
