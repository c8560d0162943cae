#pragma once
/// @file After a loss, or when nodes join: which view's weights the nodes take, if some of them have only those of an
/// older view.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace param_sync {

/// The step after which a view began, as the view before counted its steps.
struct ViewOrigin {
  std::uint64_t view = 0;   ///< the number of the view before; 0: there was none
  std::uint64_t nodes = 0;  ///< how many there were in it
  std::uint64_t step = 0;
};

/// What a node has of a view in which it was.
struct HeldView {
  std::uint64_t view = 0;        ///< its number; 0: the node was not there
  std::uint64_t nodes = 0;       ///< how many there were
  std::uint64_t first_step = 0;  ///< with which they began
  std::uint64_t clock = 0;       ///< the most pushes that a part of the weights contains which the node has
  ViewOrigin origin;
};

/// What nodes tell each other of what they have.
struct HeldOutline {
  static constexpr std::size_t kViewsMax = 6;
  HeldView views[kViewsMax];  ///< by their numbers; the last ones may be none
};

/// `Training`: what a node has of a view, with `view`, `nodes`, `first_step`, `origin`, and `ranges` that
/// have a `clock`.
template <class Training>
HeldView outline_of(const Training& held) {
  std::uint64_t clock = 0;
  for (const auto& range : held.ranges) clock = std::max<std::uint64_t>(clock, range.clock);
  return {held.view, static_cast<std::uint64_t>(held.nodes), held.first_step, clock, held.origin};
}

template <class Training>
HeldOutline outline_of(const std::vector<Training>& held) {
  HeldOutline outline;
  std::ranges::transform(held, outline.views, [](const Training& of) { return outline_of(of); });
  return outline;
}

/// Adds a view that has ended to those that a node has. If there was a step in it, all of its members had begun it, and
/// have what is needed. Until then nodes need what was before: a view may never have begun for others.
template <class Training>
void keep(std::vector<Training>& held, Training ended) {
  if (outline_of(ended).clock != 0) held.clear();
  if (held.size() == HeldOutline::kViewsMax) held.erase(held.begin() + 1);
  held.push_back(std::move(ended));
}

/// A view, with whose weights all go on.
struct ChosenView {
  std::uint64_t view = 0;
  int nodes = 0;
  std::uint64_t first_step = 0;
  ViewOrigin origin;

  /// Where the nodes go on from, with the weights after `clock` steps of this view. If there was none, the view is as
  /// if it had not been: so nodes count their steps as if they went on from the view before it.
  ViewOrigin after(std::uint64_t clock) const {
    return clock == 0 && origin.view != 0 ? origin
                                          : ViewOrigin{view, static_cast<std::uint64_t>(nodes), first_step + clock};
  }
};

/// Lists views from which the nodes may go on. They try these in order, and take the first one of which they have all
/// weights together. All nodes get the same list, as they have the same outlines. It is empty if all nodes join.
///
/// A step needs all members of a view. So all members have begun the newest view in which there was a step, and all of
/// its replicas were made: it comes first. Later views have the same weights, but some members may never have begun
/// them. They come after it, for the case that too many members of the first one are lost.
inline std::vector<ChosenView> choose_views(std::span<const HeldOutline> nodes) {
  std::vector<HeldView> all;
  for (const HeldOutline& node : nodes) {
    std::ranges::copy_if(node.views, std::back_inserter(all), [](const HeldView& of) { return of.view != 0; });
  }
  std::ranges::sort(all, {}, &HeldView::view);
  std::vector<ChosenView> chosen;
  for (const HeldView& of : all) {
    if (of.clock != 0) chosen.clear();  // there was a step
    if (!chosen.empty() && chosen.back().view == of.view) continue;
    chosen.push_back({of.view, static_cast<int>(of.nodes), of.first_step, of.origin});
  }
  return chosen;
}

}  // namespace param_sync
