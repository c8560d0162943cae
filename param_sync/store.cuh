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

}  // namespace store

/// Returns how many pushes of a range this rank has made.
__device__ inline std::uint64_t clock_of(const StoreHandle& handle, unsigned range) {
  return handle.worker->clock_of(range);
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
  const std::uint64_t clock = worker.clock_of(range);
  const store::Request request{store::RequestKind::push, range, clock, info.floats};
  const int more = info.floats != 0 ? gpusock::kMore : 0;  // what follows rings the doorbell, if something follows
  std::int64_t sent = worker.net.send(group, socket, &request, sizeof request, gpusock::kWaitAll | more, until);
  if (sent < 0) return store::lose_owner(group, worker, range, sent);
  sent = worker.net.send(group, socket, gradients, info.floats * sizeof(float), gpusock::kWaitAll, until);
  if (sent < 0) return store::lose_owner(group, worker, range, sent);
  if (group.thread_rank() == 0) {
    store::note(worker, store::Event::kPush | range, clock + 1, nullptr);
    executor::DeviceWord(worker.clocks[range]).store(clock + 1, cuda::memory_order_relaxed);  // see worker.cuh
  }
  group.sync();
  return 0;
}

/// Asks the owner for a range of weights, and waits until the store's clock allows that this rank reads them. Returns 0
/// when they are in `weights`.
///
/// `seen` is null, or memory for a number of each rank, which all threads of the group share: then it says, by rank,
/// how many of its pushes the weights contain at least.
///
/// Errors: those of push(), and -ECONNRESET (a worker is lost whose push the weights must contain).
template <class Group>
__device__ inline int pull(const Group& group, const StoreHandle& handle, unsigned range, float* weights,
                           std::uint64_t* seen, gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const store::RangeInfo& info = worker.ranges[range];
  const gpusock::Socket socket = worker.sockets[worker.connection_of(range)];
  const std::uint64_t clock = worker.clock_of(range);
  const store::Request request{store::RequestKind::pull, range, clock, info.floats};
  const std::int64_t sent = worker.net.send(group, socket, &request, sizeof request, gpusock::kWaitAll, until);
  if (sent < 0) return store::lose_owner(group, worker, range, sent);
  const auto receive = [&](void* to, std::uint64_t bytes) {
    const std::int64_t got = bytes == 0 ? 0 : worker.net.recv(group, socket, to, bytes, gpusock::kWaitAll, until);
    return got == static_cast<std::int64_t>(bytes) ? 0
                                                   : store::lose_owner(group, worker, range, min(got, std::int64_t{0}));
  };
  store::Head& head = worker.heads[worker.connection_of(range)];
  if (const int error = receive(&head.answer, sizeof head.answer); error != 0) return error;
  const store::Answer answer = head.answer;
  if (answer.kind == store::AnswerKind::lost) {
    return store::failed_with(group, worker,
                              {store::FailureKind::worker, static_cast<std::int32_t>(answer.lost), ECONNRESET,
                               static_cast<std::int32_t>(range)});
  }
  if (answer.kind != store::AnswerKind::values || answer.range != range || answer.floats != info.floats) {
    return store::lose_owner(group, worker, range, -EPROTO);
  }
  const auto ranks = static_cast<std::uint64_t>(worker.ranks);
  if (const int error = receive(head.seen, ranks * sizeof(std::uint64_t)); error != 0) return error;
  if (const int error = receive(weights, info.floats * sizeof(float)); error != 0) return error;
  if (group.thread_rank() == 0) {
    store::note(worker, range, clock, head.seen);
    for (std::uint64_t rank = 0; seen != nullptr && rank < ranks; ++rank) seen[rank] = head.seen[rank];
  }
  group.sync();
  return 0;
}

/// As the call with `seen`, which is null.
template <class Group>
__device__ inline int pull(const Group& group, const StoreHandle& handle, unsigned range, float* weights,
                           gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  return pull(group, handle, range, weights, nullptr, deadline);
}

}  // namespace param_sync
