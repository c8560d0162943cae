#include "param_sync/schedule/builder.hpp"

namespace param_sync::schedule {

/// An all-to-all reduce-scatter and an all-gather: each rank sends each other rank that rank's part, and then sends the
/// sum of its own part to all.
Schedule mesh(int nodes, int chunks) {
  // Results are received in a lane, and on a channel, of their own. So a run whose data does not fit into the rings
  // sends the next part of it while results of the part before are still in flight.
  constexpr int kScatter = 0, kSum = 1, kGather = 2;  // lanes
  constexpr int kParts = 0, kSums = 1;                // channels
  Builder builder("mesh", nodes, chunks);
  const auto part = [&](int rank) { return part_of({0, chunks}, rank, nodes); };
  for (int distance = 1; distance < nodes; ++distance) {  // each rank begins with a different peer
    for (int rank = 0; rank < nodes; ++rank) {
      const int peer = (rank + distance) % nodes;
      builder.send(rank, kScatter, peer, part(peer), kParts);
      builder.receive(peer, kSum, rank, part(peer), Take::reduce, kParts);
    }
  }
  for (int distance = 1; distance < nodes; ++distance) {
    for (int rank = 0; rank < nodes; ++rank) {
      const int peer = (rank + distance) % nodes;
      builder.send(rank, kSum, peer, part(rank), kSums);
      builder.receive(peer, kGather, rank, part(rank), Take::copy, kSums);
    }
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
