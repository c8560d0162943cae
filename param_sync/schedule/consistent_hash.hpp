#pragma once
/// @file Which node owns which part of the data, so that a node that joins or leaves moves little of it.

#include <cstdint>
#include <utility>
#include <vector>

namespace param_sync::schedule {

/// A circle of 2^64 positions. Each node has points on it, its virtual nodes, and owns what lies before each of them. A
/// node that joins or leaves changes the owner of nothing but what it gets, or had. (Karger et al., 1997.)
class ConsistentHash {
 public:
  /// 512 points each keep every node's part within 1.5 times the fair one (measured for up to 65 nodes: in the tests).
  static constexpr int kPointsOfNode = 512;

  /// Nodes are any numbers; the same number has the same points in every circle.
  explicit ConsistentHash(const std::vector<int>& nodes);

  int owner(std::uint64_t position) const;

 private:
  std::vector<std::pair<std::uint64_t, int>> points_;  // sorted
};

/// The position of a chunk: those of neighbouring chunks are neighbours, so an owner's chunks come in ranges.
std::uint64_t position_of(int chunk, int chunks);

}  // namespace param_sync::schedule
