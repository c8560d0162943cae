#pragma once
/// @file What the kernels of a rank share that push and pull (store.cuh), and how they note what they have done.
///
/// A word of `clocks` and of `traffic` has one writer at a time: the group that pushes or pulls the range. All accesses
/// are relaxed: a program orders the calls that it makes for a range, as those of a socket.

#include "param_sync/codec/mixed.hpp"
#include "param_sync/codec/wire_format.hpp"
#include "param_sync/executor/wait.cuh"
#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/correction.hpp"
#include "param_sync/store/messages.hpp"
#include "param_sync/store/replicas.hpp"
#include "param_sync/store/tree.hpp"
#include "param_sync/update/sgd.hpp"
#include "param_sync/wire/failure_record.cuh"

#include "gpusock/device.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {
struct StoreTraffic;  // store.hpp
}

namespace param_sync::store {

/// What a kernel was doing when a store failed.
enum class FailureKind : std::int32_t {
  connect,   ///< it could not connect to the rank
  accept,    ///< the rank has not connected in time
  mismatch,  ///< the rank has other ranges or options
  left,      ///< the rank has ended while ranks connect
  owner,     ///< the rank, which owns a range, is lost or late
  worker,    ///< the rank is lost, and a pull waits for its push
  told,      ///< another rank (`teller`) has lost the rank, and told so
  failed,    ///< the rank has failed, and has told that it does not know why
  request,   ///< the rank has sent a request that no worker sends
  keys,      ///< the rank has named more keys than a range has room for
  full,      ///< the rank, which owns keys, has no room for another one
  parent,    ///< the rank, which passes a range on to this one, is lost or late
  child      ///< likewise, to which this one passes a range on
};

/// Why a store has failed.
struct Failure {
  FailureKind kind = FailureKind::owner;  ///< what a kernel was doing
  std::int32_t rank = -1;                 ///< the other rank
  std::int32_t error = 0;                 ///< errno, or 0
  std::int32_t range = -1;                ///< the range that was pushed or pulled, or -1
  std::int32_t teller = -1;               ///< see FailureKind::told
};

/// A range, as workers know it.
struct RangeInfo {
  std::int32_t owner = 0;    ///< the rank that owns it
  std::uint64_t begin = 0;   ///< number of its first weight among all weights
  std::uint64_t floats = 0;  ///< how many weights it has
};

/// The rows of a range that this rank has named last. Its owner has them, too, so they are not sent again.
struct NamedRows {
  std::uint64_t rows_max = 0;  ///< how many a call may move
  std::uint64_t count = 0;     ///< how many there are
  std::uint64_t hash = 0;      ///< of their numbers
  std::uint64_t summed = 0;    ///< where threads add up a hash
};

/// What comes before the values of a pull.
struct Head {
  static constexpr int kRanksMax = 64;  ///< the most ranks of a group
  Answer answer;                        ///< the message
  std::uint64_t seen[kRanksMax];        ///< by rank: how many of its pushes the values contain
  std::uint32_t word = 0;               ///< not of the message: a word that workers send or receive by itself
};

/// A push or a pull, in the history.
struct Event {
  static constexpr std::uint64_t kPush = std::uint64_t{1} << 63;    ///< set in `what` of a push
  static constexpr std::uint64_t kCached = std::uint64_t{1} << 62;  ///< set in `what` of a cached read
  std::uint64_t what = 0;                                           ///< the range, with these bits
  std::uint64_t clock = 0;                                          ///< see StoreEvent
  std::uint64_t seen[Head::kRanksMax] = {};                         ///< see StoreEvent
};

/// A point of a rank on the circle of consistent hashing (param_sync/schedule/consistent_hash.hpp).
struct HashPoint {
  std::uint64_t position = 0;  ///< where it is
  std::int32_t rank = 0;       ///< who owns the positions before it, up to the next point
};

/// What calls need that move rows by their keys.
struct KeyOwners {
  static constexpr unsigned kThreadsMax = 1024;  ///< threads of a group that calls

  const HashPoint* points = nullptr;  ///< in ascending order
  std::uint32_t point_count = 0;      ///< how many there are; 0: the store has no keys
  std::uint32_t first_range = 0;      ///< the range of rank 0's keys; those of the others follow
  std::uint64_t keys_max = 0;         ///< how many keys a call may name
  std::uint32_t* owners = nullptr;    ///< by key of a call: the rank that owns it
  std::uint32_t* order = nullptr;     ///< the keys of a call by owner: numbers of keys
  std::uint32_t* counts = nullptr;    ///< by thread
  std::uint64_t* first = nullptr;     ///< by owner, where its keys begin in `order`; and how many there are in all

  /// The rank that owns a key.
  __device__ std::uint32_t owner_of(std::uint64_t key) const {
    const std::uint64_t position = codec::mixed(key);
    std::uint32_t before = 0;
    for (std::uint32_t end = point_count; before != end;) {
      const std::uint32_t middle = before + (end - before) / 2;
      if (points[middle].position < position) {
        before = middle + 1;
      } else {
        end = middle;
      }
    }
    return static_cast<std::uint32_t>(points[before == point_count ? 0 : before].rank);
  }
};

/// What kernels need, in device memory. Pointers point to device memory, unless their comment says otherwise.
struct Worker {
  gpusock::Net net;                           ///< the context's sockets
  std::int32_t rank = 0;                      ///< this rank
  std::int32_t ranks = 1;                     ///< how many ranks there are
  std::uint32_t connections = 1;              ///< to each owner
  std::uint32_t range_count = 0;              ///< how many ranges there are
  std::uint64_t row_floats = 1;               ///< floats of a row
  WireFormat push_format = {};                ///< how floats are sent
  WireFormat pull_format = {};                ///< how they are received
  Clock clock;                                ///< which version a read needs
  Sgd update;                                 ///< what an owner does with a push
  Correction correction;                      ///< of pushes that are late
  const RangeInfo* ranges = nullptr;          ///< all ranges
  const gpusock::Socket* sockets = nullptr;   ///< by connection_of()
  Tree tree;                                  ///< by which ranks pass weights on
  const gpusock::Socket* parents = nullptr;   ///< by owner: where its weights come from, if it is not the owner itself
  const gpusock::Socket* children = nullptr;  ///< by owner and rank: where its weights are passed on
  std::uint64_t* clocks = nullptr;            ///< by range: how many pushes this rank has made
  StoreTraffic* traffic = nullptr;            ///< by range
  NamedRows* named = nullptr;                 ///< by range
  KeyOwners keys;                             ///< see there
  Replica* replicas = nullptr;                ///< by range; null: no rank keeps any
  Head* heads = nullptr;                      ///< by connection_of()
  const gpusock::Socket* words_to = nullptr;  ///< by rank: where this rank says last words
  std::uint64_t* spoken = nullptr;            ///< by rank: not 0 once this rank says its last word to it
  const gpusock::Socket* words_from = nullptr;  ///< by rank: where they come from
  std::uint64_t* failing = nullptr;             ///< not 0 once a thread looks for the lost rank
  std::uint64_t* failed = nullptr;              ///< not 0 once a call has failed
  FailureRecord<Failure>* failure = nullptr;    ///< mapped
  Event* events = nullptr;                      ///< the history
  std::uint64_t events_max = 0;                 ///< how many events are kept
  std::uint64_t* event_count = nullptr;         ///< how many events there were; more than events_max are not kept

  /// The index of the connection to its owner that a range uses.
  __device__ unsigned connection_of(unsigned range) const {
    return range % connections * static_cast<unsigned>(ranks) + static_cast<unsigned>(ranges[range].owner);
  }
  /// How many pushes of a range this rank has made.
  __device__ std::uint64_t clock_of(unsigned range) const {
    return executor::DeviceWord(clocks[range]).load(cuda::memory_order_relaxed);
  }
};

/// Adds an event to the history. One thread.
__device__ inline void note(const Worker& worker, std::uint64_t what, std::uint64_t clock, const std::uint64_t* seen) {
  if (worker.events_max == 0) return;
  // relaxed: it only numbers the events
  const std::uint64_t at = executor::DeviceWord(*worker.event_count).fetch_add(1, cuda::memory_order_relaxed);
  if (at >= worker.events_max) return;
  Event& event = worker.events[at];
  event.what = what;
  event.clock = clock;
  for (int rank = 0; seen != nullptr && rank < worker.ranks; ++rank) event.seen[rank] = seen[rank];
}

/// True if a connection has ended: then the rank is lost, or has failed because of another one.
__device__ inline bool has_lost(const Failure& what) {
  return what.error != ETIMEDOUT && what.error != EAGAIN && what.error != EBUSY && what.error != ECANCELED &&
         what.error != EPROTO && what.error != ENOSPC;
}

/// A rank that has failed says which rank it has lost: then that one is lost, and not the one that says so. A rank that
/// was killed says nothing, and its connection ends. One thread.
__device__ inline Failure asked(const Worker& worker, const Failure& what) {
  constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  LastWord word;
  const std::int64_t got = worker.net.recv(gpusock::this_thread(), worker.words_from[what.rank], &word, sizeof word,
                                           gpusock::kWaitAll, gpusock::Deadline::after_ns(kPatienceNs));
  if (got != static_cast<std::int64_t>(sizeof word) || word.magic != LastWord::kMagic) return what;
  if (word.error == ENOSPC) return {FailureKind::full, what.rank, ENOSPC, what.range};
  const bool knows = word.lost >= 0 && word.lost < worker.ranks && word.lost != worker.rank;
  if (!knows) return {FailureKind::failed, what.rank, what.error, what.range};
  return {FailureKind::told, word.lost, what.error, what.range, what.rank};
}

/// Says this rank's last word to another one: the first word only, as a worker's kernels and the server may have one at
/// the same time, and a socket has one sender at a time. One thread.
__device__ inline void speak_to(const gpusock::Net& net, const gpusock::Socket* words_to, std::uint64_t* spoken,
                                int rank, const LastWord& word) {
  // relaxed: it only chooses the thread
  if (executor::DeviceWord(spoken[rank]).exchange(1, cuda::memory_order_relaxed) != 0) return;
  // Errors are ignored: a rank that has ended hears nothing.
  net.send(gpusock::this_thread(), words_to[rank], &word, sizeof word, 0, gpusock::Deadline::now());
}

/// Tells all ranks which one is lost. One thread.
__device__ inline void speak(const Worker& worker, const Failure& what) {
  const LastWord word{.lost = has_lost(what) && what.kind != FailureKind::failed ? what.rank : -1};
  for (int rank = 0; rank < worker.ranks; ++rank) speak_to(worker.net, worker.words_to, worker.spoken, rank, word);
}

/// Records the first failure, and ends all calls of this rank: the owners then know that it is lost. When it returns,
/// the failure is recorded. One thread.
__device__ __noinline__ inline void fail(const Worker& worker, const Failure& what) {
  // relaxed: it only chooses the thread
  if (executor::DeviceWord(*worker.failing).exchange(1, cuda::memory_order_relaxed) != 0) {
    executor::await([&] { return has_failed(*worker.failed); }, [] { return false; });
    return;
  }
  const Failure found = has_lost(what) ? asked(worker, what) : what;
  record_failure(*worker.failed, *worker.failure, found);
  speak(worker, found);
  for (std::uint32_t i = 0; i < worker.connections * static_cast<std::uint32_t>(worker.ranks); ++i) {
    worker.net.shutdown(gpusock::this_thread(), worker.sockets[i], gpusock::Shutdown::both);
  }
  const int of_trees = worker.tree.fanout == 0 ? 0 : worker.ranks;
  for (int owner = 0; owner < of_trees; ++owner) {
    if (worker.parents[owner] >= 0) {
      worker.net.shutdown(gpusock::this_thread(), worker.parents[owner], gpusock::Shutdown::both);
    }
    for (int rank = 0; rank < worker.ranks; ++rank) {
      const gpusock::Socket child = worker.children[owner * worker.ranks + rank];
      if (child >= 0) worker.net.shutdown(gpusock::this_thread(), child, gpusock::Shutdown::both);
    }
  }
}

/// Fails, and returns the result of the call that has failed. All threads of the group call it.
template <class Group>
__device__ inline int failed_with(const Group& group, const Worker& worker, const Failure& what) {
  if (group.thread_rank() == 0) fail(worker, what);
  return -what.error;
}

}  // namespace param_sync::store
