#pragma once
/// @file Trees by which ranks pass weights on (StoreOptions::tree_depth): each owner is the root of one. The trees of
/// all owners together give every rank equally many children, as those of SplitStream do (Castro et al., SOSP 2003).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// The trees of all owners: place 0 is the owner, and the ranks after it follow, level by level.
struct Tree {
  std::int32_t ranks = 1;   ///< how many ranks there are
  std::int32_t fanout = 0;  ///< children of a rank, at most; 0: there are no trees

  /// Returns trees of at most so many levels below the owner, in which ranks have as few children as that allows.
  /// `depth`: at least 1.
  static Tree of_depth(int ranks, std::uint64_t depth) {
    Tree tree{ranks, 1};
    while (tree.places_of(depth) < static_cast<std::uint64_t>(ranks)) ++tree.fanout;
    return tree;
  }

  /// The place of a rank in an owner's tree.
  GPUSOCK_FN int place_of(int owner, int rank) const { return (rank - owner + ranks) % ranks; }
  /// The rank at a place of an owner's tree.
  GPUSOCK_FN int rank_at(int owner, int place) const { return (owner + place) % ranks; }
  /// The rank from which a rank has an owner's weights; -1: it is the owner.
  GPUSOCK_FN int parent_of(int owner, int rank) const {
    const int place = place_of(owner, rank);
    return place == 0 ? -1 : rank_at(owner, (place - 1) / fanout);
  }
  /// How far a rank is from the owner.
  GPUSOCK_FN int level_of(int owner, int rank) const {
    int level = 0;
    for (int place = place_of(owner, rank); place != 0; place = (place - 1) / fanout) ++level;
    return level;
  }
  /// By how many pushes of a rank the weights of an owner lag that the rank computes with. An owner and its children
  /// have those of the push before, as the weights of a push come while the next one is computed; and each level has
  /// those that the level above it had a push before.
  GPUSOCK_FN int lag_of(int owner, int rank) const {
    const int level = level_of(owner, rank);
    return level == 0 ? 1 : level;
  }
  /// The largest lag of a rank.
  GPUSOCK_FN int lag_max() const { return ranks == 1 ? 1 : lag_of(0, ranks - 1); }
  /// True if a rank has an owner's weights from another one than the owner: then its parent sends them.
  GPUSOCK_FN bool is_sent(int owner, int rank) const { return fanout != 0 && level_of(owner, rank) > 1; }

 private:
  /// How many ranks have a place on the first levels, as far as there are ranks.
  std::uint64_t places_of(std::uint64_t depth) const {
    const auto most = static_cast<std::uint64_t>(ranks);
    std::uint64_t all = 1, of_level = 1;
    for (std::uint64_t level = 0; level < depth && all < most; ++level) {
      of_level *= static_cast<std::uint64_t>(fanout);
      all += of_level;
    }
    return all;
  }
};

}  // namespace param_sync::store
