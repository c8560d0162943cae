#include "param_sync/schedule/tree.hpp"

#include <algorithm>
#include <numeric>

namespace param_sync::schedule {
namespace {

/// Returns the ranks from the root to the leaves: parents come before their children.
std::vector<int> from_the_root(const Tree& tree, const std::vector<std::vector<int>>& children) {
  std::vector<int> order;
  for (std::size_t rank = 0; rank < tree.size(); ++rank) {
    if (tree[rank] == kNobody) order.push_back(static_cast<int>(rank));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& next = children[static_cast<std::size_t>(order[i])];
    order.insert(order.end(), next.begin(), next.end());
  }
  return order;
}

std::vector<std::vector<int>> children_of(const Tree& tree) {
  std::vector<std::vector<int>> children(tree.size());
  for (std::size_t rank = 0; rank < tree.size(); ++rank) {
    if (tree[rank] != kNobody) children[static_cast<std::size_t>(tree[rank])].push_back(static_cast<int>(rank));
  }
  return children;
}

/// Adds the ops by which one rank takes part in summing one chunk.
void sum_at(Builder& builder, int rank, int parent, const std::vector<int>& children, Range chunk, int lane,
            int channel) {
  if (children.empty()) {
    if (parent != kNobody) builder.send(rank, lane, parent, chunk, channel);
    return;
  }
  for (const int child : children) {
    if (child == children.back() && parent != kNobody) {
      builder.receive_and_send(rank, lane, child, parent, chunk, Take::reduce, channel);
    } else {
      builder.receive(rank, lane, child, chunk, Take::reduce, channel);
    }
  }
}

/// Adds the ops by which one rank sends the sum down, in up to `lanes` lanes. The first child has the first lane.
void spread_at(Builder& builder, int rank, int parent, const std::vector<int>& children, Range chunk, int lane,
               int channel, int lanes) {
  std::size_t served = 0;
  if (parent != kNobody) {
    if (children.empty()) {
      builder.receive(rank, lane, parent, chunk, Take::copy, channel);
    } else {
      builder.receive_and_send(rank, lane, parent, children.front(), chunk, Take::copy, channel);
      served = 1;
    }
  }
  for (; served < children.size(); ++served) {
    const int own_lane = lane + std::min(static_cast<int>(served), lanes - 1);
    builder.send(rank, own_lane, children[served], chunk, channel);
  }
}

/// Returns the parent of a rank in a binary tree with in-order numbers, whose root is rank 0. Odd ranks are leaves.
int in_order_parent(int rank, int nodes) {
  if (rank == 0) return kNobody;
  const int bit = rank & -rank;
  const int right = (rank ^ bit) | (bit << 1);
  return right < nodes ? right : rank ^ bit;
}

/// Returns the in-order tree in which rank r has the position of rank position_of(r).
template <class RankPositions>
Tree in_order_tree(int nodes, RankPositions position_of) {
  std::vector<int> rank_at(static_cast<std::size_t>(nodes));
  for (int rank = 0; rank < nodes; ++rank) rank_at[static_cast<std::size_t>(position_of(rank))] = rank;
  Tree tree(static_cast<std::size_t>(nodes), kNobody);
  for (int rank = 0; rank < nodes; ++rank) {
    const int parent = in_order_parent(position_of(rank), nodes);
    if (parent != kNobody) tree[static_cast<std::size_t>(rank)] = rank_at[static_cast<std::size_t>(parent)];
  }
  return tree;
}

}  // namespace

int height(const Tree& tree) {
  int highest = 0;
  for (std::size_t rank = 0; rank < tree.size(); ++rank) {
    int above = 0;
    for (int at = static_cast<int>(rank); tree[static_cast<std::size_t>(at)] != kNobody; ++above) {
      at = tree[static_cast<std::size_t>(at)];
    }
    highest = std::max(highest, above);
  }
  return highest;
}

Tree heap_tree(const std::vector<int>& ranks, int arity) {
  Tree tree(ranks.size(), kNobody);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    tree[static_cast<std::size_t>(ranks[i])] = ranks[(i - 1) / static_cast<std::size_t>(arity)];
  }
  return tree;
}

void reduce_and_broadcast(Builder& builder, const Tree& tree, Range chunks, int lane, int channel, int spread_lanes) {
  const auto children = children_of(tree);
  const std::vector<int> order = from_the_root(tree, children);
  for (int chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const Range one{chunk, chunk + 1};
    for (auto rank = order.rbegin(); rank != order.rend(); ++rank) {
      const auto at = static_cast<std::size_t>(*rank);
      sum_at(builder, *rank, tree[at], children[at], one, lane, channel);
    }
    for (const int rank : order) {
      const auto at = static_cast<std::size_t>(rank);
      spread_at(builder, rank, tree[at], children[at], one, lane + 1, channel, spread_lanes);
    }
  }
}

/// Sums go up a binary tree and come down again, chunk by chunk.
Schedule binary_tree(int nodes, int chunks) {
  Builder builder("tree:binary", nodes, chunks);
  std::vector<int> ranks(static_cast<std::size_t>(nodes));
  std::iota(ranks.begin(), ranks.end(), 0);
  reduce_and_broadcast(builder, heap_tree(ranks, 2), {0, chunks}, 0, 0);
  return std::move(builder).finish();
}

/// Two binary trees with half of the chunks each (Sanders, Speck and Traeff, 2009). A rank that has children in one
/// tree is a leaf of the other; but if `nodes` is odd, rank 0 has one child in each.
Schedule double_binary_tree(int nodes, int chunks) {
  Builder builder("tree:double-binary", nodes, chunks);
  // The second tree swaps even and odd ranks. If P is odd, rank 0 has no counterpart: it is the root of both trees.
  const auto second = [nodes](int rank) { return nodes % 2 == 0 ? nodes - 1 - rank : rank == 0 ? 0 : nodes - rank; };
  const Tree trees[2] = {in_order_tree(nodes, [](int rank) { return rank; }), in_order_tree(nodes, second)};
  for (int i = 0; i < 2; ++i) reduce_and_broadcast(builder, trees[i], part_of({0, chunks}, i, 2), 2 * i, i);
  return std::move(builder).finish();
}

/// One tree for each of `stripes` shares of the chunks (Castro et al., 2003). A rank has children in one tree at most.
Schedule split_stream(int nodes, int chunks, int stripes) {
  Builder builder("splitstream", nodes, chunks);
  const int trees = std::min(stripes, nodes);
  for (int tree = 0; tree < trees; ++tree) {
    std::vector<int> ranks, others;  // ranks that may have children come first
    for (int rank = 0; rank < nodes; ++rank) (rank % trees == tree ? ranks : others).push_back(rank);
    const int inner = static_cast<int>(ranks.size());
    const int arity = std::max(1, (nodes - 1 + inner - 1) / inner);  // large enough that the inner ranks suffice
    ranks.insert(ranks.end(), others.begin(), others.end());
    reduce_and_broadcast(builder, heap_tree(ranks, arity), part_of({0, chunks}, tree, trees), 2 * tree, tree);
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
