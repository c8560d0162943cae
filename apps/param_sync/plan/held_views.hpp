#pragma once
/// @file After a loss: which view's weights the nodes take, if some of them have only those of an older view.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace param_sync {

/// What nodes tell each other of what they have.
struct HeldOutline {
  struct OfView {
    std::uint64_t view = 0;        ///< its number; 0: the node was not there
    std::uint64_t nodes = 0;       ///< how many there were
    std::uint64_t first_step = 0;  ///< with which they began
    std::uint64_t clock = 0;       ///< the most pushes that a part of the weights contains which the node has
  };
  OfView older;   ///< see HeldViews
  OfView newest;  ///< likewise
};

/// A view, with whose weights all go on.
struct ChosenView {
  std::uint64_t view = 0;
  int nodes = 0;
  std::uint64_t first_step = 0;
};

/// The view with whose weights all go on; then another one with the same weights, if there is one. The same on all
/// nodes, as they all have the same outlines. A node may be lost while others begin a view: then those that have not
/// begun it have only the view before. In that case no node has made a step of it, since a step needs all of them, and
/// the view before has the same weights. Otherwise all that are left have begun the newest one, but for nodes that
/// join, which have nothing.
inline std::vector<ChosenView> choose_views(std::span<const HeldOutline> nodes) {
  const auto chosen = [&](HeldOutline::OfView HeldOutline::*which) {
    const HeldOutline& most = *std::ranges::max_element(nodes, {},
                                                        [&](const HeldOutline& node) { return (node.*which).view; });
    const HeldOutline::OfView& of = most.*which;
    return ChosenView{of.view, static_cast<int>(of.nodes), of.first_step};
  };
  const ChosenView newest = chosen(&HeldOutline::newest);
  const bool all_have = std::ranges::all_of(
      nodes, [&](const HeldOutline& of) { return of.newest.view == newest.view || of.newest.view == 0; });
  const bool has_steps = std::ranges::any_of(
      nodes, [&](const HeldOutline& of) { return of.newest.view == newest.view && of.newest.clock != 0; });
  if (has_steps) return {newest};
  const ChosenView older = chosen(&HeldOutline::older);
  if (older.view == 0) return {newest};
  return all_have ? std::vector{newest, older} : std::vector{older};
}

}  // namespace param_sync
