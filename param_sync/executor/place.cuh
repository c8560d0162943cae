#pragma once
/// @file Gradients that are written into the ring from which they are sent (in_place.hpp says which).
///
/// Before a step's gradients are there, the lane of such a send reserves room for its message and offers it. A block
/// that computes takes the offer; the first block that finds none decides that these floats go to the tensor, as all
/// others do. So each place is settled once in a step, for all blocks, and no block waits.
///   label  operation                          order    partner  data protected
///   L14    settled.compare_exchange (lane)    release  L15      where the room is
///   L15    settled.load (blocks)              acquire  L14      the same, before blocks write there
///   L16    settled.compare_exchange (blocks)  relaxed  L14      nothing: of a lane and all blocks one is the first
/// The lane commits what blocks have written there after L10. It changes a place for a later step when the step before
/// has ended: after L13. The room stays valid until the lane commits, or until ~Executor gives it back when no kernel
/// runs any more. So blocks may write there even if the connection fails meanwhile.

#include "param_sync/executor/program.hpp"
#include "param_sync/executor/exchange_words.cuh"

#include <cstdint>

namespace param_sync::executor {

/// What one op sends of a tensor in the first pass of a step; in device memory.
struct Place {
  Floats floats;               ///< floats of the tensor
  std::uint64_t settled;       ///< a word that only grows: see in_tensor() and in_ring()
  float* first;                ///< the room, in the step that `settled` names
  std::uint64_t first_floats;  ///< how many lie at `first`; the others lie at `rest`, past the ring's end
  float* rest;                 ///< where the others lie, or null

  /// Value of `settled` if the floats of this step go to the tensor.
  GPUSOCK_FN static std::uint64_t in_tensor(std::uint64_t step) { return 2 * step + 1; }
  /// Value of `settled` if they go to the ring.
  GPUSOCK_FN static std::uint64_t in_ring(std::uint64_t step) { return 2 * step + 2; }

  /// True if this step's floats go to the ring. Call it once the step is settled.
  GPUSOCK_FN bool is_in_ring(std::uint64_t step) {
    // relaxed: this thread's block has synchronized with who has settled it
    return DeviceWord(settled).load(cuda::memory_order_relaxed) == in_ring(step);
  }

  /// Returns a float of the place, in the ring. `index`: its index in the tensor.
  GPUSOCK_FN float& in_room(std::uint64_t index) const {
    const std::uint64_t from = index - floats.begin;
    return from < first_floats ? first[from] : rest[from - first_floats];
  }
};

/// The places of a tensor, ordered by their floats. Kernels take it by value.
struct Places {
  Place* all = nullptr;     ///< device memory
  int count = 0;            ///< how many
  float* tensor = nullptr;  ///< where all other floats go
};

/// Settles where this step's floats go, if that is still open. True if they go to the ring. One thread.
__device__ inline bool settle(Place& place, std::uint64_t step) {
  const DeviceWord settled(place.settled);
  const std::uint64_t ours = Place::in_tensor(step);
  for (;;) {
    std::uint64_t seen = settled.load(cuda::memory_order_acquire);  // L15, pairs with L14
    if (seen >= ours) return seen == Place::in_ring(step);
    if (settled.compare_exchange_strong(seen, ours, cuda::memory_order_relaxed, cuda::memory_order_relaxed)) {  // L16
      return false;
    }
  }
}

/// Offers room that the lane has reserved. False if this step's floats already go to the tensor. One thread.
__device__ inline bool offer(Place& place, std::uint64_t step) {
  const DeviceWord settled(place.settled);
  const std::uint64_t ours = Place::in_ring(step);
  std::uint64_t seen = settled.load(cuda::memory_order_relaxed);  // relaxed: L14 decides
  return seen < Place::in_tensor(step) &&
         settled.compare_exchange_strong(seen, ours, cuda::memory_order_release, cuda::memory_order_relaxed);  // L14
}

/// Where a block's part of a tensor goes in a step.
class Destination {
 public:
  /// `part`: the tensor's floats that the block computes. Block-collective. A block has a barrier between two of these
  /// objects.
  __device__ Destination(const Places& places, std::uint64_t step, Floats part) : places_(places), step_(step) {
    __shared__ Found found;
    if (threadIdx.x == 0) found = find(part);
    __syncthreads();
    found_ = found;
  }

  /// Returns where the part's first float goes if all others follow it; else null.
  __device__ float* together() const { return found_.together; }

  /// Returns where a float of the part goes. Not inlined, since few blocks need it.
  GPUSOCK_FN_APART float& operator[](std::uint64_t index) const {
    for (int i = found_.begin; i < found_.end; ++i) {
      Place& place = places_.all[i];
      if (index < place.floats.begin || index >= place.floats.end) continue;
      if (place.is_in_ring(step_)) return place.in_room(index);
    }
    return places_.tensor[index];
  }

 private:
  struct Found {
    int begin, end;  // places [begin, end) have floats of the part
    float* together;
  };

  __device__ Found find(Floats part) const {
    Found found{};
    while (found.begin < places_.count && places_.all[found.begin].floats.end <= part.begin) ++found.begin;
    found.end = found.begin;
    bool in_rings = false;
    for (; found.end < places_.count && places_.all[found.end].floats.begin < part.end; ++found.end) {
      in_rings |= settle(places_.all[found.end], step_);
    }
    if (!in_rings) {
      found.together = places_.tensor + part.begin;
    } else if (found.end == found.begin + 1) {
      const Place& place = places_.all[found.begin];
      const std::uint64_t turn = place.floats.begin + place.first_floats;  // where the ring ends
      const bool whole = part.begin >= place.floats.begin && part.end <= place.floats.end &&
                         (part.end <= turn || part.begin >= turn);
      if (whole) found.together = &place.in_room(part.begin);
    }
    return found;
  }

  Places places_;
  std::uint64_t step_;
  Found found_;
};

}  // namespace param_sync::executor
