#include "param_sync/schedule/factors.hpp"

#include "param_sync/schedule/builder.hpp"

namespace param_sync::schedule {

LayerFloats layer_floats(const FactorShape& shape, int nodes) {
  const double others = nodes - 1, weights = shape.rows * shape.columns;
  return {2 * others / nodes * weights, others * shape.samples * (shape.rows + shape.columns), others * weights};
}

bool prefers_factors(const FactorShape& shape, int nodes) {
  const LayerFloats floats = layer_floats(shape, nodes);
  return floats.broadcast <= floats.dense;
}

Schedule factor_broadcast(int nodes, int chunks) {
  Builder builder("sfb", nodes, chunks, Result::all_gather);
  for (int distance = 1; distance < nodes; ++distance) {  // each rank begins with a different peer
    for (int rank = 0; rank < nodes; ++rank) {
      builder.transfer(rank, (rank + distance) % nodes, part_of({0, chunks}, rank, nodes), Take::copy);
    }
  }
  return std::move(builder).finish();
}

Schedule factor_gather(int nodes, int chunks, int owner) {
  Builder builder("adam-fc:gather", nodes, chunks, Result::gather);
  builder.set_root(owner);
  for (int distance = 1; distance < nodes; ++distance) {
    const int worker = (owner + distance) % nodes;
    builder.transfer(worker, owner, part_of({0, chunks}, worker, nodes), Take::copy);
  }
  return std::move(builder).finish();
}

Schedule owner_broadcast(int nodes, int chunks, int owner) {
  Builder builder("adam-fc:broadcast", nodes, chunks, Result::broadcast);
  builder.set_root(owner);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int distance = 1; distance < nodes; ++distance) {
      builder.transfer(owner, (owner + distance) % nodes, {chunk, chunk + 1}, Take::copy);
    }
  }
  return std::move(builder).finish();
}

Schedule factor_server(int nodes, int chunks, int owner) {
  constexpr int kPush = 0, kSum = 1, kPublish = 2, kPull = 3;  // lanes
  constexpr int kPushes = 0, kPulls = 1;                       // channels
  Builder builder("adam-fc", nodes, chunks, Result::parameter_server);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Range one{chunk, chunk + 1};
    for (int distance = 1; distance < nodes; ++distance) {
      const int worker = (owner + distance) % nodes;
      builder.send(worker, kPush, owner, one, kPushes);
      builder.receive(owner, kSum, worker, one, Take::reduce, kPushes);
    }
    builder.apply(owner, kSum, one);
    for (int distance = 1; distance < nodes; ++distance) {
      const int worker = (owner + distance) % nodes;
      builder.send(owner, kPublish, worker, one, kPulls);
      builder.receive(worker, kPull, owner, one, Take::copy, kPulls);
    }
  }
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
