#pragma once
/// @file Which nodes have a slot after a step (--sync slots:M). All nodes can compute it, so no message says it. Slots
/// in turn are as in Chen et al., "Round-Robin Synchronization: Mitigating Communication Bottlenecks in Parameter
/// Servers", INFOCOM 2019; here each round has an order of its own.

#include <cstdint>

namespace param_sync {

/// Steps are divided into rounds. Each node has one slot in a round.
struct Slots {
  std::uint64_t count = 0;  ///< at most so many nodes have a slot after a step; 0: no node ever has
  int nodes = 1;
  std::uint64_t seed = 0;

  /// Steps of a round.
  std::uint64_t round_steps() const { return (static_cast<std::uint64_t>(nodes) + count - 1) / count; }
  /// The step of a round, from 0 on, after which a node has its slot.
  std::uint64_t step_of(int rank, std::uint64_t round) const;
};

}  // namespace param_sync
