#pragma once
/// @file Which ranks have replicas of an owner's ranges (StoreOptions::replicas), and what a rank keeps of one.

#include "param_sync/update/sgd.hpp"

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// The ranks that have a range: its owner, and those that come after it.
struct Replicas {
  std::int32_t ranks = 1;  ///< how many ranks there are
  std::int32_t count = 1;  ///< how many of them have a range; 1: its owner alone

  /// True if a rank keeps a replica of an owner's ranges.
  GPUSOCK_FN bool keeps(int owner, int rank) const {
    const int place = (rank - owner + ranks) % ranks;
    return place != 0 && place < count;
  }
  /// True if a rank that reads version `clock` of an owner's ranges must wait for a keeper, which has version `kept`:
  /// then no rank goes on from weights that are lost with their owner. Who keeps a replica, and the owner, have what
  /// they read themselves.
  GPUSOCK_FN bool waits_for(int owner, int reader, int keeper, std::uint64_t clock, std::uint64_t kept) const {
    return reader != owner && !keeps(owner, reader) && keeps(owner, keeper) && kept < clock;
  }
  /// The rank that keeps replica number `number` of an owner's ranges, 1 to count - 1.
  GPUSOCK_FN int keeper(int owner, int number) const { return (owner + number) % ranks; }
};

/// Floats of a range with the states of its weights, which come after all weights.
GPUSOCK_FN inline std::uint64_t replica_floats(std::uint64_t floats) {
  return floats * (1 + static_cast<std::uint64_t>(Sgd::kStateFloats));
}

/// A replica of a range: its newest version, and the one before, in device memory. Version c contains c pushes of each
/// rank. A rank that is lost while it sends a version leaves the one before whole.
struct Replica {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  ///< the clock of memory that has no version

  float* memory = nullptr;                   ///< of two versions; null: this rank keeps none of the range
  std::uint64_t floats = 0;                  ///< of a version
  std::uint64_t clocks[2] = {kNone, kNone};  ///< of the versions that are whole

  /// Where version `clock` is.
  GPUSOCK_FN float* of(std::uint64_t clock) const { return memory + clock % 2 * floats; }
};

}  // namespace param_sync::store
