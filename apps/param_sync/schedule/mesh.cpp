#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace param_sync::schedule {

Schedule mesh(int nodes, int chunks) {
  Builder builder("mesh", nodes, chunks);
  const auto part = [&](int rank) { return part_of({0, chunks}, rank, nodes); };
  for (int distance = 1; distance < nodes; ++distance) {  // each rank begins with another peer
    for (int rank = 0; rank < nodes; ++rank) {
      const int peer = (rank + distance) % nodes;
      builder.transfer(rank, peer, part(peer), Take::reduce);
    }
  }
  for (int distance = 1; distance < nodes; ++distance) {
    for (int rank = 0; rank < nodes; ++rank) builder.transfer(rank, (rank + distance) % nodes, part(rank), Take::copy);
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
