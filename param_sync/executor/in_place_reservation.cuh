#pragma once
/// @file Gradients that are written into the ring from which they are sent (in_place.hpp says which).
///
/// Before a step's gradients are there, the lane of such a send reserves room for its message and publishes the
/// reservation. A block that computes writes there. The first block that finds no reservation decides that these floats
/// go to the tensor, as all others do. So each decision is made once in a step, for all blocks, and no block waits.
///   label  operation                           order    partner  data protected
///   L14    decision.compare_exchange (lane)    release  L15      where the room is
///   L15    decision.load (blocks)              acquire  L14      the same, before blocks write there
///   L16    decision.compare_exchange (blocks)  relaxed  L14      nothing: of a lane and all blocks one is the first
/// The lane commits what blocks have written there after L10. It changes a reservation for a later step when the step
/// before has ended: after L13. The room stays valid until the lane commits, or until ~Executor gives it back when no
/// kernel runs any more. So blocks may write there even if the connection fails meanwhile.

#include "param_sync/executor/program.hpp"
#include "param_sync/executor/exchange_words.cuh"

#include <cstdint>

namespace param_sync::executor {

/// Where kernels write what one op sends of a tensor in the first pass of a step; in device memory.
struct InPlaceReservation {
  Floats floats;               ///< floats of the tensor
  std::uint64_t decision;      ///< a word that only grows: see in_tensor() and in_ring()
  float* first;                ///< the room, in the step that `decision` names
  std::uint64_t first_floats;  ///< how many lie at `first`; the others lie at `rest`, past the ring's end
  float* rest;                 ///< where the others lie, or null

  /// Value of `decision` if the floats of this step go to the tensor.
  GPUSOCK_FN static std::uint64_t in_tensor(std::uint64_t step) { return 2 * step + 1; }
  /// Value of `decision` if they go to the ring.
  GPUSOCK_FN static std::uint64_t in_ring(std::uint64_t step) { return 2 * step + 2; }

  /// True if this step's floats go to the ring. Call it once that is decided.
  GPUSOCK_FN bool is_in_ring(std::uint64_t step) {
    // relaxed: this thread's block has synchronized with the thread that decided
    return DeviceWord(decision).load(cuda::memory_order_relaxed) == in_ring(step);
  }

  /// Returns a float of the reservation, in the ring. `index`: its index in the tensor.
  GPUSOCK_FN float& in_room(std::uint64_t index) const {
    const std::uint64_t from = index - floats.begin;
    return from < first_floats ? first[from] : rest[from - first_floats];
  }
};

/// The reservations of a tensor, ordered by their floats. Kernels take it by value.
struct InPlaceReservations {
  InPlaceReservation* all = nullptr;  ///< device memory
  int count = 0;                      ///< how many
  float* tensor = nullptr;            ///< where all other floats go
};

/// Decides where this step's floats go, if that is still open. True if they go to the ring. One thread.
__device__ inline bool decide(InPlaceReservation& reservation, std::uint64_t step) {
  const DeviceWord decision(reservation.decision);
  const std::uint64_t ours = InPlaceReservation::in_tensor(step);
  for (;;) {
    std::uint64_t seen = decision.load(cuda::memory_order_acquire);  // L15, pairs with L14
    if (seen >= ours) return seen == InPlaceReservation::in_ring(step);
    if (decision.compare_exchange_strong(seen, ours, cuda::memory_order_relaxed, cuda::memory_order_relaxed)) {  // L16
      return false;
    }
  }
}

/// Publishes room that the lane has reserved. False if this step's floats already go to the tensor. One thread.
__device__ inline bool publish(InPlaceReservation& reservation, std::uint64_t step) {
  const DeviceWord decision(reservation.decision);
  const std::uint64_t ours = InPlaceReservation::in_ring(step);
  std::uint64_t seen = decision.load(cuda::memory_order_relaxed);  // relaxed: L14 decides
  return seen < InPlaceReservation::in_tensor(step) &&
         decision.compare_exchange_strong(seen, ours, cuda::memory_order_release, cuda::memory_order_relaxed);  // L14
}

/// Where a block's part of a tensor goes in a step.
class Destination {
 public:
  /// `part`: the tensor's floats that the block computes. Block-collective. A block has a barrier between two of these
  /// objects.
  __device__ Destination(const InPlaceReservations& reservations, std::uint64_t step, Floats part)
      : reservations_(reservations), step_(step) {
    GPUSOCK_SHARED(found, Found);
    if (threadIdx.x == 0) found = find(part);
    __syncthreads();
    found_ = found;
  }

  /// Returns where the part's first float goes if all others follow it; else null.
  __device__ float* together() const { return found_.together; }

  /// Returns where a float of the part goes. Not inlined, since few blocks need it.
  GPUSOCK_FN_APART float& operator[](std::uint64_t index) const {
    for (int i = found_.begin; i < found_.end; ++i) {
      InPlaceReservation& reservation = reservations_.all[i];
      if (index < reservation.floats.begin || index >= reservation.floats.end) continue;
      if (reservation.is_in_ring(step_)) return reservation.in_room(index);
    }
    return reservations_.tensor[index];
  }

 private:
  struct Found {
    int begin, end;  // reservations [begin, end) have floats of the part
    float* together;
  };

  __device__ Found find(Floats part) const {
    Found found{};
    while (found.begin < reservations_.count && reservations_.all[found.begin].floats.end <= part.begin) ++found.begin;
    found.end = found.begin;
    bool in_rings = false;
    for (; found.end < reservations_.count && reservations_.all[found.end].floats.begin < part.end; ++found.end) {
      in_rings |= decide(reservations_.all[found.end], step_);
    }
    if (!in_rings) {
      found.together = reservations_.tensor + part.begin;
    } else if (found.end == found.begin + 1) {
      const InPlaceReservation& reservation = reservations_.all[found.begin];
      const std::uint64_t turn = reservation.floats.begin + reservation.first_floats;  // where the ring ends
      const bool whole = part.begin >= reservation.floats.begin && part.end <= reservation.floats.end &&
                         (part.end <= turn || part.begin >= turn);
      if (whole) found.together = &reservation.in_room(part.begin);
    }
    return found;
  }

  InPlaceReservations reservations_;
  std::uint64_t step_;
  Found found_;
};

}  // namespace param_sync::executor
