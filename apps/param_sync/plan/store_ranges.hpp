#pragma once
/// @file How the parameters of a model are divided into the ranges of a store (--sync).

#include "layout/layout.hpp"

#include <vector>

namespace param_sync {

/// A range of the store: a part of a layer.
struct StoreRange {
  int layer = 0;
  Range parameters;  ///< counted in the whole model
  int owner = 0;     ///< the rank that owns it
};

/// Returns the ranges, by layer: each layer has as many of about equal size as there are nodes.
std::vector<StoreRange> store_ranges(const Layout& layout, int nodes);

}  // namespace param_sync
