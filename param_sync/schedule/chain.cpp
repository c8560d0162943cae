#include "param_sync/schedule/builder.hpp"
#include "param_sync/schedule/collectives.hpp"

namespace param_sync::schedule {
namespace {

constexpr int kUpLane = 0, kDownLane = 1;

}  // namespace

/// Each chunk goes from rank 0 to the last rank, and its sum comes back. Each rank adds its data to the sum of all
/// ranks before it, so that sums are made in the order of ranks.
Schedule chain(int nodes, int chunks) {
  Builder builder("chain", nodes, chunks);
  const int last = nodes - 1;
  for (int chunk = 0; chunk < chunks && nodes > 1; ++chunk) {
    const Range one{chunk, chunk + 1};
    builder.send(0, kUpLane, 1, one);
    for (int rank = 1; rank < last; ++rank) {
      builder.receive_and_send(rank, kUpLane, rank - 1, rank + 1, one, Take::reduce);
    }
    builder.receive_and_send(last, kUpLane, last - 1, last - 1, one, Take::reduce);
    for (int rank = last - 1; rank > 0; --rank) {
      builder.receive_and_send(rank, kDownLane, rank + 1, rank - 1, one, Take::copy);
    }
    builder.receive(0, kDownLane, 1, one, Take::copy);
  }
  return std::move(builder).finish();
}

Schedule chain_broadcast(int nodes, int chunks, int root) {
  Builder builder("chain:broadcast", nodes, chunks, Result::broadcast);
  builder.set_root(root);
  const auto at = [&](int distance) { return (root + distance) % nodes; };
  for (int chunk = 0; chunk < chunks && nodes > 1; ++chunk) {
    const Range one{chunk, chunk + 1};
    builder.send(root, kUpLane, at(1), one);
    for (int distance = 1; distance < nodes - 1; ++distance) {
      builder.receive_and_send(at(distance), kUpLane, at(distance - 1), at(distance + 1), one, Take::copy);
    }
    builder.receive(at(nodes - 1), kUpLane, at(nodes - 2), one, Take::copy);
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
