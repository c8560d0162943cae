#pragma once
/// @file Gradients that are written into the ring from which they are sent (in_place.hpp says which).
///
/// Before a step's gradients are there, the lane of such a send reserves room for its message and offers it. A block
/// that computes takes what is offered; the first one that finds no offer decides that the tensor gets these floats, as
/// all others. So each place is settled once in a step, for all blocks, and no block waits.
///   label  operation                          order    partner  data protected
///   L14    settled.compare_exchange (lane)    release  L15      where the room is
///   L15    settled.load (blocks)              acquire  L14      the same, before blocks write there
///   L16    settled.compare_exchange (blocks)  relaxed  L14      nothing: of a lane and all blocks one is the first
/// What they write there the lane commits after L10. It moves a place for a later step when the one before has ended:
/// after L13. The room stays valid until the lane commits, or the executor's end gives it back: that comes when no
/// kernel runs any more. So blocks may write there whatever becomes of the connection meanwhile.

#include "param_sync/executor/program.hpp"
#include "param_sync/executor/exchange_words.cuh"

#include <cstdint>

namespace param_sync::executor {

/// What one op sends of a tensor in the first pass of a step; in device memory.
struct Place {
  Floats floats;               ///< of the tensor
  std::uint64_t settled;       ///< a word; it grows: see below
  float* first;                ///< the room, of step `settled`
  std::uint64_t first_floats;  ///< that lie there; the others follow at `rest`, past the ring's end
  float* rest;                 ///< where the others lie, or none

  /// What `settled` is where the tensor gets the floats of this step.
  GPUSOCK_FN static std::uint64_t in_tensor(std::uint64_t step) { return 2 * step + 1; }
  /// What `settled` is where the ring gets them.
  GPUSOCK_FN static std::uint64_t in_ring(std::uint64_t step) { return 2 * step + 2; }

  /// True if this step's floats are in the ring. Once it is settled.
  GPUSOCK_FN bool is_in_ring(std::uint64_t step) {
    // relaxed: this thread's block has synchronized with who has settled it
    return DeviceWord(settled).load(cuda::memory_order_relaxed) == in_ring(step);
  }

  /// One of its floats, in the ring.
  GPUSOCK_FN float& in_room(std::uint64_t index) const {
    const std::uint64_t from = index - floats.begin;
    return from < first_floats ? first[from] : rest[from - first_floats];
  }
};

/// Those of a tensor, by their floats; by value.
struct Places {
  Place* all = nullptr;     ///< device memory
  int count = 0;            ///< how many
  float* tensor = nullptr;  ///< where all other floats go
};

/// Settles where this step's floats go, if that is open. True: into the ring. One thread.
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

/// Offers room that the lane has reserved. False if the tensor gets this step's floats. One thread.
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
  /// `part`: what the block computes, floats of the tensor. Block-collective. Between two of them a block has a
  /// barrier.
  __device__ Destination(const Places& places, std::uint64_t step, Floats part) : places_(places), step_(step) {
    __shared__ Found found;
    if (threadIdx.x == 0) found = find(part);
    __syncthreads();
    found_ = found;
  }

  /// Where the part's first float goes if all others follow it; else none.
  __device__ float* together() const { return found_.together; }

  /// Where a float of the part goes. Apart: few blocks need it.
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
    int begin, end;  // places that have floats of the part
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
