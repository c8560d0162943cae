#pragma once
/// @file Pushes and pulls that kernels make, by the handle of a Store (store.hpp). For sources that are compiled for
/// the device.
///
///   __global__ void train(param_sync::StoreHandle store, float* weights, float* gradients, ...) {
///     const auto block = gpusock::this_block();
///     for (...) {
///       if (param_sync::pull(block, store, 0, weights) != 0) return;    // range 0
///       ...                                                            // computes gradients from the weights
///       if (param_sync::push(block, store, 0, gradients) != 0) return;
///     }
///   }
///
/// A call is made by a group of threads, as socket calls are: a thread, a warp or a block. All threads of the group
/// call with the same arguments, and get the same result. Groups may use ranges of different connections at the same
/// time (StoreOptions::connections).
///
/// Deadlines are those of socket calls; without one a call ends after a minute. After an error of any call but -EINVAL
/// the store has failed: Store::check() says why, and later calls fail, too.

#include "param_sync/codec/mixed.hpp"
#include "param_sync/codec/packed.cuh"
#include "param_sync/store.hpp"
#include "param_sync/store/worker.cuh"

#include "gpusock/device.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

namespace store {

/// Records that the owner of a range is lost, or has not answered by the deadline.
template <class Group>
__device__ inline int lose_owner(const Group& group, const Worker& worker, unsigned range, std::int64_t result) {
  const int error = result < 0 ? static_cast<int>(-result) : ECONNRESET;  // the end of the stream
  return failed_with(group, worker,
                     {FailureKind::owner, worker.ranges[range].owner, error, static_cast<std::int32_t>(range)});
}

/// Adds to what one group of threads counts at a time. One thread.
__device__ inline void add_bytes(std::uint64_t& word, std::uint64_t bytes) {
  const executor::DeviceWord all(word);
  all.store(all.load(cuda::memory_order_relaxed) + bytes, cuda::memory_order_relaxed);  // see worker.cuh
}

/// Counts a push of so many bytes that was sent.
template <class Group>
__device__ inline void note_push(const Group& group, const Worker& worker, unsigned range, std::uint64_t bytes) {
  if (group.thread_rank() == 0) {
    const std::uint64_t clock = worker.clock_of(range);
    add_bytes(worker.traffic[range].pushed_bytes, bytes);
    note(worker, Event::kPush | range, clock + 1, nullptr);
    executor::DeviceWord(worker.clocks[range]).store(clock + 1, cuda::memory_order_relaxed);  // see worker.cuh
  }
  group.sync();
}

inline constexpr std::uint64_t kPieceWords = 16 << 10;  ///< the most words that are packed or unpacked at a time

/// Sends words of a request: write(first, count, to) writes `count` of them, from number `first` on.
template <class Group, class Write>
__device__ inline int send_words(const Group& group, const Worker& worker, unsigned range, std::uint64_t all,
                                 Write write, gpusock::Deadline until) {
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  for (std::uint64_t done = 0; done < all;) {
    const std::uint64_t most = min(all - done, kPieceWords);
    const gpusock::Span room = worker.net.reserve(group, socket, most * sizeof(std::uint32_t), until);
    if (room.size <= 0) return lose_owner(group, worker, range, room.size);
    const std::uint64_t words = static_cast<std::uint64_t>(room.size) / sizeof(std::uint32_t);
    if (words == 0) {  // less than a word is free: this waits until one is
      worker.net.abort(group, socket);
      std::uint32_t& one = worker.heads[worker.connection_of(range)].word;
      write(done, std::uint64_t{1}, &one);
      group.sync();
      const std::int64_t sent = worker.net.send(group, socket, &one, sizeof one, gpusock::kWaitAll, until);
      if (sent < 0) return lose_owner(group, worker, range, sent);
      ++done;
      continue;
    }
    write(done, words, static_cast<std::uint32_t*>(room.data));
    group.sync();  // all is written before it is committed
    const int error = worker.net.commit(group, socket, words * sizeof(std::uint32_t));
    if (error != 0) return lose_owner(group, worker, range, error);
    done += words;
  }
  return 0;
}

/// Sends the floats of a push. value(row, i): see codec::Packed.
template <class Group, class Value>
__device__ inline int send_packed(const Group& group, const Worker& worker, unsigned range,
                                  const codec::MessageRows& of, Value value, gpusock::Deadline until) {
  return codec::with_format(worker.push_format, [&]<class Format>(const Format&) {
    const codec::Packed<Format> packed(of);
    const auto write = [&](std::uint64_t first, std::uint64_t count, std::uint32_t* to) {
      packed.pack(first, count, to, group.thread_rank(), group.size(), nullptr, value,
                  [](std::uint64_t, std::uint64_t, float) {});
    };
    return send_words(group, worker, range, packed.words(), write, until);
  });
}

/// Sends a request. `follows`: something follows it, which rings the doorbell.
template <class Group>
__device__ inline int send_request(const Group& group, const Worker& worker, const Request& request, bool follows,
                                   gpusock::Deadline until) {
  const int flags = gpusock::kWaitAll | (follows ? gpusock::kMore : 0);
  const gpusock::Socket socket = worker.sockets[worker.connection_of(request.range)];
  const std::int64_t sent = worker.net.send(group, socket, &request, sizeof request, flags, until);
  return sent < 0 ? lose_owner(group, worker, request.range, sent) : 0;
}

/// A hash of what names rows, of the order, and of whether they are numbers or keys; for all threads of the group.
template <class Group, class Name>
__device__ inline std::uint64_t hash_of(const Group& group, NamedRows& named, std::uint64_t count, Name name) {
  const executor::DeviceWord sum(named.summed);
  if (group.thread_rank() == 0) sum.store(0, cuda::memory_order_relaxed);  // the group's barriers order all of these
  group.sync();
  std::uint64_t own = 0;
  for (std::uint64_t i = group.thread_rank(); i < count; i += group.size()) {
    own += codec::mixed(i + codec::mixed(name(i)) + sizeof(name(i)));
  }
  sum.fetch_add(own, cuda::memory_order_relaxed);
  group.sync();
  const std::uint64_t hash = sum.load(cuda::memory_order_relaxed);
  group.sync();
  return hash;
}

/// The kind of a request that names rows by numbers, or by keys of 8 bytes.
__device__ inline RequestKind kind_of(bool is_push, bool again, bool by_key) {
  if (again) return is_push ? RequestKind::push_again : RequestKind::pull_again;
  if (by_key) return is_push ? RequestKind::push_keys : RequestKind::pull_keys;
  return is_push ? RequestKind::push_rows : RequestKind::pull_rows;
}

/// Sends a request that moves `count` rows of a range, and names them: name(i) is the number of one, or its key. If the
/// rank has named the same ones before, they are not sent again. Adds the bytes that it has sent to `bytes`. `is_push`:
/// floats follow.
template <class Group, class Name>
__device__ inline int send_request_of_rows(const Group& group, const Worker& worker, unsigned range, bool is_push,
                                           std::uint64_t count, Name name, std::uint64_t& bytes,
                                           gpusock::Deadline until) {
  constexpr std::uint64_t kWords = sizeof(name(std::uint64_t{})) / sizeof(std::uint32_t);
  NamedRows& named = worker.named[range];
  const std::uint64_t hash = hash_of(group, named, count, name);
  const bool again = hash == named.hash && count == named.count;
  const Request request{kind_of(is_push, again, kWords == 2), range, worker.clock_of(range), count};
  const bool follows = count != 0 && (is_push || !again);
  if (const int error = send_request(group, worker, request, follows, until); error != 0) return error;
  bytes += sizeof request;
  if (again) return 0;
  const auto write = [&](std::uint64_t first, std::uint64_t words, std::uint32_t* to) {
    for (std::uint64_t i = group.thread_rank(); i < words; i += group.size()) {
      const std::uint64_t word = first + i;
      to[i] = static_cast<std::uint32_t>(name(word / kWords) >> 32 * (word % kWords));
    }
  };
  if (const int error = send_words(group, worker, range, count * kWords, write, until); error != 0) return error;
  bytes += count * kWords * sizeof(std::uint32_t);
  if (group.thread_rank() == 0) {
    named.count = count;
    named.hash = hash;
  }
  group.sync();
  return 0;
}

/// Receives the beginning of an answer to a pull of these rows.
template <class Group>
__device__ inline int receive_head(const Group& group, const Worker& worker, unsigned range,
                                   const codec::MessageRows& of, gpusock::Deadline until) {
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  const auto receive = [&](void* to, std::uint64_t bytes) {
    const std::int64_t got = worker.net.recv(group, socket, to, bytes, gpusock::kWaitAll, until);
    return got == static_cast<std::int64_t>(bytes) ? 0 : lose_owner(group, worker, range, min(got, std::int64_t{0}));
  };
  Head& head = worker.heads[worker.connection_of(range)];
  if (const int error = receive(&head.answer, sizeof head.answer); error != 0) return error;
  const Answer answer = head.answer;
  if (answer.kind == AnswerKind::lost) {
    return failed_with(
        group, worker,
        {FailureKind::worker, static_cast<std::int32_t>(answer.lost), ECONNRESET, static_cast<std::int32_t>(range)});
  }
  if (answer.kind != AnswerKind::values || answer.range != range || answer.floats != of.rows * of.floats) {
    return lose_owner(group, worker, range, -EPROTO);
  }
  return receive(head.seen, static_cast<std::uint64_t>(worker.ranks) * sizeof(std::uint64_t));
}

/// Receives the floats of an answer: value(row, i, float) takes float number i of a row of the message.
template <class Group, class Value>
__device__ inline int receive_packed(const Group& group, const Worker& worker, unsigned range,
                                     const codec::MessageRows& of, Value value, gpusock::Deadline until) {
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  return codec::with_format(worker.pull_format, [&]<class Format>(const Format&) {
    const codec::Packed<Format> packed(of);
    codec::BeforePiece before;
    std::uint64_t done = 0;
    const auto take = [&](const std::uint32_t* words, std::uint64_t count) {
      for (std::uint64_t i = group.thread_rank(); i < count; i += group.size()) {
        packed.unpack(words, done, i, before, value);
      }
      before = packed.after(words, done, count, before);
      done += count;
      group.sync();  // all have read the words before they are released
    };
    while (done < packed.words()) {
      const std::uint64_t most = min(packed.words() - done, kPieceWords);
      const gpusock::Span span = worker.net.peek(group, socket, most * sizeof(std::uint32_t), until);
      if (span.size <= 0) return lose_owner(group, worker, range, span.size);
      const std::uint64_t count = static_cast<std::uint64_t>(span.size) / sizeof(std::uint32_t);
      if (count != 0) take(static_cast<const std::uint32_t*>(span.data), count);
      const int error = worker.net.release(group, socket, count * sizeof(std::uint32_t));
      if (error != 0) return lose_owner(group, worker, range, error);
      if (count != 0) continue;
      std::uint32_t& one = worker.heads[worker.connection_of(range)].word;  // a part of a word has come
      const std::int64_t got = worker.net.recv(group, socket, &one, sizeof one, gpusock::kWaitAll, until);
      if (got != static_cast<std::int64_t>(sizeof one)) {
        return lose_owner(group, worker, range, min(got, std::int64_t{0}));
      }
      take(&one, 1);
    }
    return 0;
  });
}

/// With a clock that drops late pushes, a worker goes on from the version that it has pulled. One thread.
__device__ inline void catch_up(const Worker& worker, unsigned range, std::uint64_t version) {
  if (!worker.clock.drops_late() || version <= worker.clock_of(range)) return;
  executor::DeviceWord(worker.clocks[range]).store(version, cuda::memory_order_relaxed);  // see worker.cuh
}

/// Counts a pull of these rows that was answered, whose request was so many bytes.
template <class Group>
__device__ inline void note_pull(const Group& group, const Worker& worker, unsigned range, std::uint64_t asked,
                                 const codec::MessageRows& of, std::uint64_t* seen) {
  if (group.thread_rank() == 0) {
    const auto ranks = static_cast<std::uint64_t>(worker.ranks);
    const Head& head = worker.heads[worker.connection_of(range)];
    const std::uint64_t words = of.rows * codec::words_of(worker.pull_format, of.floats);
    add_bytes(worker.traffic[range].asked_bytes, asked);
    add_bytes(worker.traffic[range].pulled_bytes,
              sizeof(Answer) + ranks * sizeof(std::uint64_t) + words * sizeof(std::uint32_t));
    note(worker, range, worker.clock_of(range), head.seen);
    catch_up(worker, range, head.seen[worker.rank]);
    for (std::uint64_t rank = 0; seen != nullptr && rank < ranks; ++rank) seen[rank] = head.seen[rank];
  }
  group.sync();
}

/// Receives the answer to a pull of these rows, whose request was so many bytes. `seen`: see pull().
template <class Group>
__device__ inline int receive_answer(const Group& group, const Worker& worker, unsigned range, std::uint64_t asked,
                                     const codec::MessageRows& of, float* weights, std::uint64_t* seen,
                                     gpusock::Deadline until) {
  if (const int error = receive_head(group, worker, range, of, until); error != 0) return error;
  const std::uint64_t floats = of.rows * of.floats;
  if (worker.pull_format != WireFormat::float32) {
    const auto value = [&](std::uint64_t row, std::uint64_t i, float number) { weights[row * of.floats + i] = number; };
    if (const int error = receive_packed(group, worker, range, of, value, until); error != 0) return error;
  } else if (floats != 0) {
    const std::uint64_t bytes = floats * sizeof(float);
    const std::int64_t got = worker.net.recv(group, worker.sockets[worker.connection_of(range)], weights, bytes,
                                             gpusock::kWaitAll, until);
    if (got != static_cast<std::int64_t>(bytes)) return lose_owner(group, worker, range, min(got, std::int64_t{0}));
  }
  note_pull(group, worker, range, asked, of, seen);
  return 0;
}

/// True if this rank keeps a replica of a range.
__device__ inline bool keeps_replica(const Worker& worker, unsigned range) {
  return worker.replicas != nullptr && worker.replicas[range].memory != nullptr;
}

/// Pulls a range and its states, keeps them as this rank's replica, and tells the owner so. `seen`: see pull().
template <class Group>
__device__ inline int pull_replica(const Group& group, const Worker& worker, unsigned range, float* weights,
                                   std::uint64_t* seen, gpusock::Deadline until) {
  Replica& replica = worker.replicas[range];
  const std::uint64_t clock = worker.clock_of(range), floats = worker.ranges[range].floats;
  if (group.thread_rank() == 0) replica.clocks[clock % 2] = Replica::kNone;
  group.sync();
  Request request{RequestKind::pull_replica, range, clock, floats};
  if (const int error = send_request(group, worker, request, false, until); error != 0) return error;
  const codec::MessageRows of{1, replica.floats};
  const int error = receive_answer(group, worker, range, sizeof request, of, replica.of(clock), seen, until);
  if (error != 0) return error;
  gpusock::copy(group, weights, replica.of(clock), floats * sizeof(float));
  if (group.thread_rank() == 0) replica.clocks[clock % 2] = clock;
  group.sync();
  request.kind = RequestKind::replicated;
  return send_request(group, worker, request, false, until);
}

/// Pushes `count` rows of a range, wherever they are: name(row) is the number of one, or its key, and value(row, i) its
/// float number i. Numbers and keys ascend.
template <class Group, class Name, class Value>
__device__ inline int push_rows_from(const Group& group, const StoreHandle& handle, unsigned range, std::uint64_t count,
                                     Name name, Value value, gpusock::Deadline deadline) {
  const Worker& worker = *handle.worker;
  if (range >= worker.range_count || count > worker.named[range].rows_max) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  std::uint64_t bytes = 0;
  if (const int error = send_request_of_rows(group, worker, range, true, count, name, bytes, until); error != 0) {
    return error;
  }
  const codec::MessageRows of{count, worker.row_floats};
  if (const int error = send_packed(group, worker, range, of, value, until); error != 0) return error;
  bytes += count * codec::words_of(worker.push_format, worker.row_floats) * sizeof(std::uint32_t);
  note_push(group, worker, range, bytes);
  return 0;
}

}  // namespace store

/// Returns how many pushes of a range this rank has made. With Backup and Coded: the version of a range after a pull.
__device__ inline std::uint64_t clock_of(const StoreHandle& handle, unsigned range) {
  return handle.worker->clock_of(range);
}

/// Returns what this rank has moved of a range. Only one group of threads at a time may use the range.
__device__ inline StoreTraffic traffic_of(const StoreHandle& handle, unsigned range) {
  return handle.worker->traffic[range];
}

/// Sends a range of gradients, or of what else StoreOptions::update takes, to the range's owner. Returns 0 when all of
/// it is in the connection's ring; the owner applies it later.
///
/// Errors: -EINVAL (no such range), -ETIMEDOUT, and with Deadline::now() -EAGAIN (the owner has not taken it by the
/// deadline: it is late, or with Bsp another worker is), -ECONNRESET or -EPIPE (the owner is lost, or the store has
/// failed before), -EBUSY (another group uses the connection), -ECANCELED (the context ends).
template <class Group>
__device__ inline int push(const Group& group, const StoreHandle& handle, unsigned range, const float* gradients,
                           gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const store::RangeInfo& info = worker.ranges[range];
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  const store::Request request{store::RequestKind::push, range, worker.clock_of(range), info.floats};
  const int failed = store::send_request(group, worker, request, info.floats != 0, until);
  if (failed != 0) return failed;
  if (worker.push_format == WireFormat::float32) {
    const std::int64_t sent = worker.net.send(group, socket, gradients, info.floats * sizeof(float), gpusock::kWaitAll,
                                              until);
    if (sent < 0) return store::lose_owner(group, worker, range, sent);
  } else {
    const int error = store::send_packed(
        group, worker, range, {1, info.floats}, [&](std::uint64_t, std::uint64_t i) { return gradients[i]; }, until);
    if (error != 0) return error;
  }
  const std::uint64_t words = codec::words_of(worker.push_format, info.floats);
  store::note_push(group, worker, range, sizeof request + words * sizeof(std::uint32_t));
  return 0;
}

/// Asks the owner for a range of weights, and waits until the store's clock allows that this rank reads them. Returns 0
/// when they are in `weights`.
///
/// `seen` is null, or memory for a number of each rank, which all threads of the group share: then it says, by rank,
/// how many of its pushes the weights contain at least.
///
/// With Backup and Coded `seen` and clock_of() count versions, which are sums: a pull returns a version that has at
/// least this rank's clock, and from then on this is the rank's clock. So a rank that was late goes on from the newest
/// version.
///
/// With StoreOptions::replicas it also keeps the range, if this rank has a replica of it, and waits for the ranks that
/// have one otherwise.
///
/// Errors: those of push(), and -ECONNRESET (a worker is lost whose push the weights must contain, or who has a replica
/// of the range).
template <class Group>
__device__ inline int pull(const Group& group, const StoreHandle& handle, unsigned range, float* weights,
                           std::uint64_t* seen, gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const std::uint64_t floats = worker.ranges[range].floats;
  if (store::keeps_replica(worker, range)) return store::pull_replica(group, worker, range, weights, seen, until);
  const store::Request request{store::RequestKind::pull, range, worker.clock_of(range), floats};
  if (const int error = store::send_request(group, worker, request, false, until); error != 0) return error;
  return store::receive_answer(group, worker, range, sizeof request, {1, floats}, weights, seen, until);
}

/// As the call with `seen`, which is null.
template <class Group>
__device__ inline int pull(const Group& group, const StoreHandle& handle, unsigned range, float* weights,
                           gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  return pull(group, handle, range, weights, nullptr, deadline);
}

/// As pull(), and it waits until the weights contain certain pushes: after[rank] pushes of each rank, or more. So a
/// pull can depend on any pushes, whatever the store's clock is. (Tasks that depend on others: Li et al., "Scaling
/// distributed machine learning with the parameter server", OSDI 2014.)
///
/// `after`: a number for each rank, which all threads of the group share. If one of these pushes never comes, the call
/// ends at its deadline; and if it cannot come, because its rank is lost, at once.
///
/// Errors: those of pull().
template <class Group>
__device__ inline int pull_after(const Group& group, const StoreHandle& handle, unsigned range,
                                 const std::uint64_t* after, float* weights, std::uint64_t* seen = nullptr,
                                 gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const std::uint64_t floats = worker.ranges[range].floats;
  const std::uint64_t bytes = static_cast<std::uint64_t>(worker.ranks) * sizeof *after;
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  const store::Request request{store::RequestKind::pull_after, range, worker.clock_of(range), floats};
  if (const int error = store::send_request(group, worker, request, true, until); error != 0) return error;
  const std::int64_t sent = worker.net.send(group, socket, after, bytes, gpusock::kWaitAll, until);
  if (sent < 0) return store::lose_owner(group, worker, range, sent);
  return store::receive_answer(group, worker, range, sizeof request + bytes, {1, floats}, weights, seen, until);
}

/// Sends gradients of some rows of a range, such as those of an embedding that a batch has used. All others count as 0.
/// It is a push of the range, as push() is: its clock counts one more, also if there is no row. Bytes are those of the
/// rows, and 4 for each. An owner that applies pushes by themselves leaves the velocities of other rows as they are.
///
/// `rows`: numbers of rows in the range, which ascend. An owner disconnects a rank that sends others. `gradients`: the
/// floats of these rows, one row after the other. Both are memory that all threads of the group share. If this rank's
/// last call for rows of this range named the same ones, as a pull_rows() before may have done, their numbers are not
/// sent again.
///
/// Errors: those of push(), and -EINVAL for more rows than StoreOptions::rows_max.
template <class Group>
__device__ inline int push_rows(const Group& group, const StoreHandle& handle, unsigned range,
                                const std::uint32_t* rows, std::uint64_t count, const float* gradients,
                                gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const std::uint64_t row_floats = handle.worker->row_floats;
  return store::push_rows_from(
      group, handle, range, count, [&](std::uint64_t row) { return rows[row]; },
      [&](std::uint64_t row, std::uint64_t i) { return gradients[row * row_floats + i]; }, deadline);
}

/// Asks the owner for some rows of a range, and waits for them as pull() does. `seen`: see pull().
///
/// `rows`: numbers of rows in the range, in any order; `weights`: memory for their floats. Both are memory that all
/// threads of the group share. Numbers that this rank's last call for rows of this range named are not sent again.
///
/// Errors: those of pull(), and -EINVAL for more rows than StoreOptions::rows_max.
template <class Group>
__device__ inline int pull_rows(const Group& group, const StoreHandle& handle, unsigned range,
                                const std::uint32_t* rows, std::uint64_t count, float* weights,
                                std::uint64_t* seen = nullptr,
                                gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count || count > worker.named[range].rows_max) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  std::uint64_t bytes = 0;
  const auto number = [&](std::uint64_t row) { return rows[row]; };
  const int error = store::send_request_of_rows(group, worker, range, false, count, number, bytes, until);
  if (error != 0) return error;
  return store::receive_answer(group, worker, range, bytes, {count, worker.row_floats}, weights, seen, until);
}

}  // namespace param_sync
