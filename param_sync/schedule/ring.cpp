#include "param_sync/schedule/builder.hpp"
#include "param_sync/schedule/collectives.hpp"

namespace param_sync::schedule {

/// Ring all-reduce (Patarasuk and Yuan, 2009): nodes - 1 steps of reduce-scatter, and as many of all-gather. In each
/// step, each rank sends one part.
Schedule ring(int nodes, int chunks) {
  // As in mesh(), results have lanes and a channel of their own. So a run whose data does not fit into the rings sums
  // the next part of it while results of the part before are still in flight.
  constexpr int kPassOn = 2, kTake = 3;  // lanes
  constexpr int kParts = 0, kSums = 1;   // channels
  Builder builder("ring", nodes, chunks);
  const auto part = [&](int index) { return part_of({0, chunks}, (index + 2 * nodes) % nodes, nodes); };
  for (int step = 0; step < nodes - 1; ++step) {
    for (int rank = 0; rank < nodes; ++rank) {
      const int next = (rank + 1) % nodes;
      builder.send(rank, Builder::kSendLane, next, part(rank - step), kParts);
      builder.receive(next, Builder::kReceiveLane, rank, part(rank - step), Take::reduce, kParts);
    }
  }
  for (int step = 0; step < nodes - 1; ++step) {
    for (int rank = 0; rank < nodes; ++rank) {
      const int next = (rank + 1) % nodes;
      builder.send(rank, kPassOn, next, part(rank + 1 - step), kSums);
      builder.receive(next, kTake, rank, part(rank + 1 - step), Take::copy, kSums);
    }
  }
  return std::move(builder).finish();
}

Schedule ring_reduce_scatter(int nodes, int chunks) {
  Builder builder("ring:reduce-scatter", nodes, chunks, Result::reduce_scatter);
  for (int step = 0; step < nodes - 1; ++step) {
    for (int rank = 0; rank < nodes; ++rank) {
      const int part = (rank - step - 1 + 2 * nodes) % nodes;
      builder.transfer(rank, (rank + 1) % nodes, part_of({0, chunks}, part, nodes), Take::reduce);
    }
  }
  return std::move(builder).finish();
}

Schedule ring_all_gather(int nodes, int chunks) {
  Builder builder("ring:all-gather", nodes, chunks, Result::all_gather);
  for (int step = 0; step < nodes - 1; ++step) {
    for (int rank = 0; rank < nodes; ++rank) {
      const int part = (rank - step + nodes) % nodes;
      builder.transfer(rank, (rank + 1) % nodes, part_of({0, chunks}, part, nodes), Take::copy);
    }
  }
  return std::move(builder).finish();
}

/// The ring in messages of one chunk. A rank adds its own chunk to a message and sends it on at once. In each of
/// `lanes` lanes, `nodes` chunks go round at the same time.
Schedule segmented_ring(int nodes, int chunks, int lanes) {
  Builder builder("ring:segmented", nodes, chunks);
  const int steps = nodes > 1 ? 2 * (nodes - 1) : -1;  // steps that send; one more step only receives
  for (int pass = 0; pass * nodes < chunks; ++pass) {
    const int lane = pass % lanes;
    for (int step = 0; step <= steps; ++step) {
      for (int rank = 0; rank < nodes; ++rank) {
        const int chunk = pass * nodes + (rank - step + 2 * nodes) % nodes;
        if (chunk >= chunks) continue;  // the last pass may have fewer chunks
        const Range one{chunk, chunk + 1};
        const int before = (rank + nodes - 1) % nodes, next = (rank + 1) % nodes;
        const Take take = step < nodes ? Take::reduce : Take::copy;
        if (step == 0) {
          builder.send(rank, lane, next, one, lane);
        } else if (step < steps) {
          builder.receive_and_send(rank, lane, before, next, one, take, lane);
        } else {
          builder.receive(rank, lane, before, one, take, lane);
        }
      }
    }
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
