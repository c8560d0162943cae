#pragma once
/// @file Decides which node owns which part of the data, so that little data moves when a node joins or leaves.

#include <cstdint>
#include <utility>
#include <vector>

namespace param_sync::schedule {

/// A circle of 2^64 positions. Each node has points on it, its virtual nodes, and owns the positions before each of its
/// points. When a node joins or leaves, only positions that it gets or had change owner. (Karger et al., 1997.)
class ConsistentHash {
 public:
  /// With 512 points each, no node's part is more than 1.5 times the fair one (the tests measure up to 65 nodes).
  static constexpr int kPointsOfNode = 512;

  /// Nodes may be any numbers. A number has the same points in every circle.
  explicit ConsistentHash(const std::vector<int>& nodes);

  int owner(std::uint64_t position) const;

  /// All points, in ascending order: where each is, and whose it is.
  const std::vector<std::pair<std::uint64_t, int>>& points() const& { return points_; }
  const std::vector<std::pair<std::uint64_t, int>>& points() const&& = delete;

 private:
  std::vector<std::pair<std::uint64_t, int>> points_;  // sorted
};

/// Returns the position of a chunk. Neighbouring chunks have neighbouring positions, so an owner's chunks form ranges.
std::uint64_t position_of(int chunk, int chunks);

}  // namespace param_sync::schedule
