#pragma once
/// @file The generators: each makes the schedule of one scheme. Chunks that do not divide evenly are shared out so that
/// parts differ by one chunk at most; a part may be empty. Where P is written, it is the number of nodes.

#include "param_sync/schedule/schedule.hpp"

#include <vector>

namespace param_sync::schedule {

class Topology;

/// Everybody sends each other its part, then the sum of its own part to all. (All-to-all reduce-scatter and
/// all-gather.)
Schedule mesh(int nodes, int chunks);

/// Parameter server whose owners are the nodes themselves: workers send gradients to the owners, which sum them, apply
/// the optimizer and send the weights back. Owners are found by consistent hashing (consistent_hash.hpp). An owner's
/// ranges go one after the other: one is sent back while the next one comes. `slots`: see Request; 0: no limit.
Schedule parameter_server(int nodes, int chunks, int slots = 0);

/// Parameter server whose owners have equal parts, one each. An owner sums, applies the optimizer and sends the weights
/// back in one lane, so that three lanes do. `slots`: see Request; 0: no limit.
Schedule even_parameter_server(int nodes, int chunks, int slots = 0);

/// Ring all-reduce: P - 1 steps of reduce-scatter, P - 1 of all-gather, in each of which all send one of P parts.
/// (Patarasuk and Yuan, 2009.)
Schedule ring(int nodes, int chunks);

/// The ring in messages of one chunk, which pass through a rank without a stop: it adds its own and sends them on. P
/// chunks go round at a time in each of `lanes` lanes.
Schedule segmented_ring(int nodes, int chunks, int lanes);

/// The two halves of the ring: P - 1 steps each, in which each rank sends one of P parts.
Schedule ring_reduce_scatter(int nodes, int chunks);
Schedule ring_all_gather(int nodes, int chunks);

/// Sums go from rank 0 to the last rank and come back, chunk after chunk. Each rank adds its data to the sum of all
/// ranks before it, so that sums are in the order of ranks.
Schedule chain(int nodes, int chunks);

/// The root's data goes from rank to rank, chunk after chunk.
Schedule chain_broadcast(int nodes, int chunks, int root);

/// Recursive halving and doubling. (Thakur, Rabenseifner and Gropp, 2005.) Where P is no power of two, some ranks give
/// their data to a neighbour first and get the result from it.
Schedule halving_doubling(int nodes, int chunks);

/// Recursive doubling: all data is exchanged in each of log2(P) steps. P as for halving_doubling().
Schedule butterfly(int nodes, int chunks);

/// Sums go up a binary tree and come down again, one chunk after the other.
Schedule binary_tree(int nodes, int chunks);

/// Two binary trees with half of the chunks each; a rank with children in one is a leaf of the other, but for a
/// rank 0 with one child in each where P is odd. (Sanders, Speck
/// and Traeff, 2009.)
Schedule double_binary_tree(int nodes, int chunks);

/// As many trees as stripes, each with its share of the chunks; a rank has children in one at most. (Castro et al.,
/// 2003.)
Schedule split_stream(int nodes, int chunks, int stripes);

/// Groups of neighbouring ranks reduce-scatter among themselves, part by part all groups all-reduce over a ring, and
/// groups all-gather. The last group may be smaller.
Schedule hierarchical(int nodes, int chunks, int group_size);

/// Workers and extra summation nodes share the summing so that all send equally much. (Jiang et al., OSDI 2020,
/// section 4.) `summation_nodes` is at most `workers`; they are the ranks after the workers.
Schedule byteps(int workers, int chunks, int summation_nodes);

/// Spanning trees packed over a topology's links, each with its share of the chunks. (Wang et al., MLSys 2020.)
Schedule blink(const Topology& topology, int chunks);

/// Chunks that each worker, and each summation node, sums at best.
struct ByteShares {
  double worker = 0;
  double summation_node = 0;
};
ByteShares byteps_shares(int workers, int summation_nodes);

}  // namespace param_sync::schedule
