#pragma once
/// @file How a lane that fails finds out by last words (last_words.cuh) which rank is lost, and tells the peers. One
/// thread makes each call.

#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/last_words.cuh"

#include <cerrno>

namespace param_sync::executor {

/// Makes the peer's word the cause of this rank's failure.
__device__ inline void take_word(const LastWord& word, int rank, ExecutionFailure& what) {
  using Why = LastWord::Why;
  what.lost = word.rank;
  what.blame = Blame::unknown;
  if (word.why == Why::lost) what.blame = word.rank == rank ? Blame::this_rank : Blame::told;
  if (word.why == Why::protocol) what.blame = word.rank == rank ? Blame::this_rank : Blame::told_of_schedule;
  if (word.why == Why::argument) what.blame = Blame::told_of_argument;
}

/// True if a rank other than `except` has by now said which rank is lost. Writes that to `what`.
__device__ inline bool was_told(const LastWords& words, int except, ExecutionFailure& what) {
  LastWord word;
  const int channel = words.hear_told(except, word);
  if (channel < 0) return false;
  what.channel = channel;
  take_word(word, words.rank, what);
  return true;
}

/// Finds out whether a peer is the lost rank, after its connection has ended or nothing came from it in time. Waits for
/// the last word of the peer, which may itself have to find out, and reads what other ranks have said.
__device__ inline void find_lost(const LastWords& words, std::uint64_t timeout_ns, ExecutionFailure& what) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  constexpr std::uint64_t kPatienceMinNs = 100'000'000;
  constexpr std::uint64_t kFindingOutNs = 3 * kPatienceNs;  // twice the peer's patience, and more
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
  } else if (heard == 0 || (heard == -ECONNRESET && !late)) {  // late: this rank's word may have reset it
    if (!waits) what.blame = Blame::peer;
  }
  if (what.blame != Blame::unknown || was_told(words, -1, what)) return;
  if (late && heard == -ETIMEDOUT && !waits && !words.answers(peer)) what.blame = Blame::silent_peer;
}

/// Returns the last word that tells the peers of a failure.
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

/// Finds out which rank is the cause of a failure, and tells the peers.
__device__ __noinline__ inline void exchange_last_words(const LastWords& words, std::uint64_t timeout_ns,
                                                        ExecutionFailure& what) {
  if (!words.exist()) return;
  const bool of_peer = what.kind == ExecutionFailureKind::receive || what.kind == ExecutionFailureKind::send;
  const bool ended = what.error == 0 || what.error == ECONNRESET || what.error == EPIPE || what.error == ETIMEDOUT;
  if (of_peer && ended) find_lost(words, timeout_ns, what);
  words.speak(word_of(what, what.channel < 0 ? -1 : words.channels[what.channel].peer));
}

}  // namespace param_sync::executor
