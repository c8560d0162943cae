#pragma once
/// @file What a rank that fails tells its peers before it ends its connections: which rank it has lost. So a peer that
/// sees the end of a connection to a healthy rank names the lost one, or says that it does not know it.
///
/// Each rank has one more connection to each of its peers (kLastWordsChannel). Nothing but last words goes there, so
/// they have room, and they come before the connection's end. A rank that was killed says nothing: its connection ends
/// without a word. A rank whose wait has timed out takes the word of any peer. One thread makes each call. With
/// LastWordsBy::lanes it is of the first lane that fails. With LastWordsBy::host one kernel of the program tells, and
/// another one hears.

#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/program.hpp"
#include "param_sync/wire/shared_socket.cuh"

#include "gpusock/device.cuh"

#include <cerrno>

namespace param_sync::executor {

struct LastWord {
  static constexpr std::uint64_t kMagic = 0x64726f577473614c;  // "LastWord"
  enum class Why : std::uint32_t {
    lost,         ///< `rank` is lost, for certain
    waits,        ///< the wait for `rank` has timed out; a word of another kind follows when the cause is known
    protocol,     ///< `rank` does not follow the schedule
    argument,     ///< `rank` was given an invalid argument
    unknown,      ///< the speaker does not know what it was
    interrupted,  ///< the speaker was told to end
    completed     ///< the speaker has done all of its work
  };
  static constexpr int kSaidMax = 2;  ///< by a rank: that it waits, and what it has found out
  std::uint64_t magic = kMagic;
  Why why = Why::unknown;
  std::int32_t rank = -1;

  GPUSOCK_FN bool is_certain() const { return why == Why::lost || why == Why::protocol || why == Why::argument; }
};
static_assert(sizeof(LastWord) == 16);

/// By value; pointers are to device memory. Without channels there are no last words.
struct LastWords {
  gpusock::Net net;
  const Channel* channels = nullptr;
  const gpusock::Socket* sockets = nullptr;  ///< by channel
  std::int32_t count = 0;
  std::int32_t rank = -1;                        ///< this one
  const gpusock::Endpoint* addresses = nullptr;  ///< where ranks listen

  GPUSOCK_FN bool exist() const { return channels != nullptr; }
  GPUSOCK_FN bool carries(int channel) const { return exist() && channels[channel].number == kLastWordsChannel; }

  /// The socket on which last words go to and from a rank; negative: there is none, or it is not open.
  __device__ gpusock::Socket socket_to(int peer) const {
    for (int i = 0; i < count; ++i) {
      if (carries(i) && channels[i].peer == peer) return SharedSocket(sockets[i]).get();
    }
    return -EBADF;
  }

  /// Tells all peers that are connected by now.
  __device__ void speak(const LastWord& word) const {
    for (int i = 0; i < count; ++i) {
      if (!carries(i)) continue;
      // A peer that has ended does not hear it.
      const gpusock::Socket socket = SharedSocket(sockets[i]).get();
      if (socket >= 0) net.send(gpusock::this_thread(), socket, &word, sizeof word, 0, gpusock::Deadline::now());
    }
  }

  /// The peer's next word: its size; 0: the connection has ended without one; or a negated errno.
  __device__ std::int64_t listen(int peer, LastWord& word, std::uint64_t timeout_ns) const {
    const gpusock::Socket socket = socket_to(peer);
    if (socket < 0) return -EBADF;
    const auto got = net.recv(gpusock::this_thread(), socket, &word, sizeof word, gpusock::kWaitAll,
                              gpusock::Deadline::after_ns(timeout_ns));
    if (got == static_cast<std::int64_t>(sizeof word) && word.magic != LastWord::kMagic) return -EPROTO;
    return got < 0 || got == static_cast<std::int64_t>(sizeof word) ? got : 0;
  }

  /// The next word that is certain, of those that have come from any rank but `except`: its channel, or -1. Does not
  /// wait.
  __device__ int hear_told(int except, LastWord& word) const {
    for (int i = 0; i < count; ++i) {
      if (!carries(i) || channels[i].peer == except) continue;
      for (int said = 0; said < LastWord::kSaidMax; ++said) {
        if (listen(channels[i].peer, word, 0) != static_cast<std::int64_t>(sizeof word)) break;
        if (word.is_certain()) return i;
      }
    }
    return -1;
  }

  /// False where nothing answers at the peer's address: its process is stopped, or its host is gone. By a link that the
  /// peer's operating system serves alone (tcp) a stopped process is no different from one that waits. A refusal is an
  /// answer: who has only closed its listener lives, and the connections of a process that is gone end.
  __device__ bool answers(int peer) const {
    constexpr std::uint64_t kPatienceNs = 2'000'000'000;
    const auto thread = gpusock::this_thread();
    const gpusock::Socket socket = net.connect(thread, addresses[peer], gpusock::Deadline::after_ns(kPatienceNs));
    if (socket >= 0) net.close(thread, socket);
    return socket != -ETIMEDOUT && socket != -EHOSTUNREACH && socket != -ENETUNREACH;
  }
};

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
__device__ inline void exchange_last_words(const LastWords& words, std::uint64_t timeout_ns, ExecutionFailure& what) {
  if (!words.exist()) return;
  const bool of_peer = what.kind == ExecutionFailureKind::receive || what.kind == ExecutionFailureKind::send;
  const bool ended = what.error == 0 || what.error == ECONNRESET || what.error == EPIPE || what.error == ETIMEDOUT;
  if (of_peer && ended) find_lost(words, timeout_ns, what);
  words.speak(word_of(what, what.channel < 0 ? -1 : words.channels[what.channel].peer));
}

}  // namespace param_sync::executor
