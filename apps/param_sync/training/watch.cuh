#pragma once
/// @file What nodes tell each other about their state, from when they are connected until their end, and how a node
/// notices that another one ends.
///
/// A node that ends, for whatever reason, tells all others before it ends its connections. So if a connection ends and
/// no word has come, the peer was killed or is gone; it did not end because of another node. Words go over the
/// executor's connections for last words (param_sync/executor/last_words.cuh).

#include "training/state.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

using executor::LastWord;

/// What a node has heard of another node's end; in mapped memory.
struct Heard {
  enum class What : std::uint32_t { nothing, word, mute_end };
  What what = What::nothing;
  LastWord word;
};

/// Makes a failure of what a node has heard of `peer`, of which a connection has ended: a word other than `completed`,
/// an end without a word, or nothing.
GPUSOCK_FN inline Failure failure_of(const Heard& heard, int peer) {
  if (heard.what == Heard::What::nothing) return {.kind = FailureKind::silent, .teller = peer};
  if (heard.what == Heard::What::mute_end) return {FailureKind::end, peer};
  if (heard.word.why == LastWord::Why::interrupted) return {FailureKind::interrupted, peer};
  Failure told{FailureKind::told};
  if (heard.word.why == LastWord::Why::lost && heard.word.rank < kNodesMax) told.rank = heard.word.rank;
  told.teller = peer;
  return told;
}

/// Stores a peer's word, or its end, in `heard`. Returns what LastWords::listen() returns. One thread.
__device__ inline std::int64_t hear(const NodeState& node, int peer, Heard* heard, std::uint64_t timeout_ns) {
  LastWord word;
  const std::int64_t got = node.words.listen(peer, word, timeout_ns);
  if (got == -EAGAIN || got == -ETIMEDOUT || got == -ECANCELED || got == -EBADF) return got;
  heard[peer] = {got > 0 ? Heard::What::word : Heard::What::mute_end, word};
  return got;
}

/// Receives what this peer said before its connections ended, after another kernel has seen that end. One block of one
/// thread, after watch_nodes() has ended.
[[maybe_unused]] static __global__ void hear_peer(NodeState node, int peer, Heard* heard) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  if (heard[peer].what == Heard::What::nothing) hear(node, peer, heard, kPatienceNs);
}

/// Tells the word to all nodes that are connected by now, and then tells the host by `said`. It waits for no peer. One
/// block of one thread.
[[maybe_unused]] static __global__ void tell_word(executor::LastWords words, LastWord word, std::uint64_t* said) {
  words.speak(word);
  note_said(*said);
}

/// Resident. Notices when another node ends before it has completed its training, also one that this node's schedules
/// never meet. A node that has completed it says so (leave()). Ends when all others have. One block of one thread.
[[maybe_unused]] static __global__ void watch_nodes(NodeState node, std::uint64_t* ending, Heard* heard) {
  constexpr std::uint64_t kTurnNs = 1'000'000'000;  // events end a wait; else it only checks whether the run goes on
  GPUSOCK_SHARED(entries, gpusock::PollEntry[kNodesMax]);
  const auto thread = gpusock::this_thread();
  int training = 0;  // how many others are still training
  for (int peer = 0; peer < node.nodes; ++peer) {
    entries[peer] = {node.words.socket_to(peer), gpusock::kPollIn, 0};
    if (entries[peer].socket >= 0) ++training;
  }
  // Relaxed, also below: no data depends on it.
  while (training > 0 && !ended(node) && SystemWord(*ending).load(cuda::memory_order_relaxed) == 0) {
    if (node.net.poll(thread, entries, node.nodes, gpusock::Deadline::after_ns(kTurnNs)) < 0) return;
    for (int peer = 0; peer < node.nodes; ++peer) {
      if (entries[peer].socket < 0 || entries[peer].revents == 0) continue;
      const std::int64_t got = hear(node, peer, heard, 0);
      if (got == -EAGAIN || got == -ETIMEDOUT) continue;
      if (SystemWord(*ending).load(cuda::memory_order_relaxed) != 0) return;
      if (got < 0) {
        fail(node, FailureKind::end, peer, -got);
      } else if (got == 0 || heard[peer].word.why != LastWord::Why::completed) {
        fail(node, failure_of(heard[peer], peer));
      }
      entries[peer].socket = -1;
      --training;
    }
  }
}

/// Tells all others that this node has completed its training. Ends watch_nodes(), whose `ending` is not 0 by now. One
/// block of one thread.
[[maybe_unused]] static __global__ void leave(NodeState node) {
  node.words.speak({.why = LastWord::Why::completed});
  for (int peer = 0; peer < node.nodes; ++peer) {
    const gpusock::Socket socket = node.words.socket_to(peer);
    if (socket >= 0) node.net.shutdown(gpusock::this_thread(), socket, gpusock::Shutdown::both);
  }
}

}  // namespace param_sync
