#pragma once
/// @file How a resident lane reserves room in rings for kernels (in_place_reservation.cuh), and sends what they write.

#include "param_sync/executor/op.cuh"

namespace param_sync::executor {

/// Returns the reservation of an op, or null.
__device__ inline InPlaceReservation* reservation_of(const Run& run, int lane, int index) {
  if (run.reservations == nullptr) return nullptr;
  const int reservation = run.reservation_of_op[run.lanes[lane].begin + index];
  return reservation == schedule::kNobody ? nullptr : run.reservations + reservation;
}

/// True if kernels have written what the op sends now into the ring. Call it when the step's gradients are there.
__device__ inline bool is_written(const Run& run, int lane, int index, std::uint64_t pass) {
  InPlaceReservation* reservation = pass == 0 ? reservation_of(run, lane, index) : nullptr;
  return reservation != nullptr && reservation->is_in_ring(run.number - 1);
}

/// Sends a message that is written in the ring. Block-collective.
__device__ inline bool send_written(const OpAt& at) {
  at.words = at.header().floats;
  const int error = at.out_net().commit(gpusock::this_block(), at.out(),
                                        sizeof(MessageHeader) + at.words * sizeof(float));
  return error == 0 || at.lost(ExecutionFailureKind::send, error);
}

/// Writes a message's header, and stores in `reservation` where its floats go. All lengths are multiples of 4. One
/// thread.
__device__ inline void lay_out(const MessageHeader& header, const gpusock::Span& first, const gpusock::Span& rest,
                               InPlaceReservation& reservation) {
  const std::uint64_t words = static_cast<std::uint64_t>(first.size) / sizeof(std::uint32_t);
  const std::uint64_t before = words < kHeaderWords ? words : kHeaderWords;  // header words before the ring's end
  const HeaderWords from(header);
  auto *begin = static_cast<std::uint32_t*>(first.data), *turned = static_cast<std::uint32_t*>(rest.data);
  for (std::uint64_t i = 0; i < kHeaderWords; ++i) (i < before ? begin[i] : turned[i - before]) = from.word[i];
  reservation.first = static_cast<float*>(first.data) + before;
  reservation.first_floats = words - before;
  reservation.rest = rest.size == 0 ? nullptr : static_cast<float*>(rest.data) + (kHeaderWords - before);
}

/// Reserves room for what an op sends in its first pass, and publishes it. Returns false if there is no room yet: try
/// again. On an error of the socket it returns true, and the op finds the error. It reserves by the run's Net: the
/// lane's own Net would end the reservation with the lane, while blocks may still write there. Block-collective.
__device__ inline bool try_reserve_in_place(const OpAt& at, InPlaceReservation& reservation) {
  const auto block = gpusock::this_block();
  const bool open = threadIdx.x != 0 ||
                    // relaxed: it only saves a reservation
                    DeviceWord(reservation.decision).load(cuda::memory_order_relaxed) <
                        InPlaceReservation::in_tensor(at.step());
  if (__syncthreads_and(open) == 0) return true;
  const MessageHeader header = at.header();
  gpusock::Span rest;
  const gpusock::Span first = at.run.net.reserve(block, at.out(), sizeof header + header.floats * sizeof(float), rest,
                                                 gpusock::Deadline::now());
  if (first.size < 0) return first.size != -EAGAIN;
  bool taken = true;
  if (threadIdx.x == 0) {
    lay_out(header, first, rest, reservation);
    taken = publish(reservation, at.step());
  }
  if (__syncthreads_and(taken) == 0) at.run.net.abort(block, at.out());
  return true;
}

/// Waits until all lanes have ended `steps` steps: then no other op uses the channels any more. Block-collective.
__device__ inline bool await_steps(const Run& run, ExchangeWords& words, std::uint64_t steps) {
  return block_awaits([&] { return has_version(words, steps); }, [&] { return has_failed(run); });
}

/// Reserves room for all sends of a lane that may be written in place, in the step that the run's number names. Returns
/// false if the run has failed. It ends: if a ring has no room, blocks that compute decide for the tensor.
/// Block-collective.
__device__ inline bool reserve_in_place(const Run& run, LaneSockets& sockets, ExchangeWords& words, int lane) {
  if (run.reservations == nullptr) return true;
  const int ops = run.lanes[lane].end - run.lanes[lane].begin;
  std::uint64_t unused = 0;
  Backoff backoff;
  for (bool left = true, ended = false; left;) {
    left = false;
    for (int index = 0; index < ops; ++index) {
      InPlaceReservation* reservation = reservation_of(run, lane, index);
      if (reservation == nullptr) continue;
      if (!ended && !await_steps(run, words, run.number - 1)) return false;
      ended = true;
      const LaneOp op = run.ops[run.lanes[lane].begin + index];
      if (!try_reserve_in_place({run, sockets, op, lane, index, 0, gpusock::Deadline::now(), unused}, *reservation))
        left = true;
    }
    if (!left) break;
    if (__syncthreads_and(threadIdx.x != 0 || !has_failed(run)) == 0) return false;
    backoff.pause();
  }
  return true;
}

}  // namespace param_sync::executor
