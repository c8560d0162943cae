#pragma once
/// @file Spanning trees of a topology that has many links, one grown after the other.

#include "param_sync/schedule/packing.hpp"

namespace param_sync::schedule {

/// Trees with node 0 as their root that fit the links. Their bandwidths add up to `wanted` (a share) of the topology's
/// min_cut(), unless that takes more trees than the links have directions. Fast where the linear program of
/// pack_trees() is slow, but it may give more trees.
std::vector<PackedTree> grow_trees(const Topology& topology, double wanted);

}  // namespace param_sync::schedule
