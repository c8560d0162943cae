#include "plan/layer_exchange.hpp"

#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/program.hpp"
#include "param_sync/schedule/factors.hpp"
#include "param_sync/schedule/schemes.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace param_sync {
namespace {

constexpr std::uint32_t kChunkFloatsMin = 256;  // smaller chunks cost more in headers and calls than they hide

schedule::Request request_of(const ExchangeShape& shape) {
  schedule::Request request;
  request.nodes = shape.nodes;
  request.credits = shape.credits;
  return request;
}

/// The most chunks into which it is worth cutting so many parameters.
int chunks_at_most(std::uint32_t parameters) {
  return static_cast<int>(std::max<std::uint32_t>(parameters / kChunkFloatsMin, 1));
}

schedule::Schedule make_dense(const std::string& scheme, const ExchangeShape& shape) {
  schedule::Request request = request_of(shape);
  // At least one chunk for each rank, however small: some schemes need that to keep all ranks busy.
  request.chunks = std::min(schedule::default_chunks(scheme, request),
                            std::max(chunks_at_most(shape.parameters), shape.nodes));
  return schedule::generate(scheme, request);
}

std::uint64_t sent_bytes(const LayerExchange& exchange, int rank) {
  const std::uint64_t unit_bytes = std::min(chunk_bytes_max(exchange), kUnitBytesMax);
  const auto program = executor::program_of(exchange.schedule, rank, executor::channels_of({exchange.schedule}, rank));
  const executor::Sent sent = executor::sent_in_step(
      program, {exchange.floats, unit_bytes / sizeof(float), static_cast<std::uint32_t>(exchange.schedule.chunks)},
      false);
  return sent.messages * sizeof(executor::MessageHeader) + sent.floats * sizeof(float);
}

}  // namespace

ExchangeShape ExchangeShape::of(const Layout& layout, int layer, std::uint32_t batch, int credits) {
  const Layer& own = layout[layer];
  return {layout.nodes, credits, batch, layer, own.parameters(), own.inputs(), own.outputs(), own.has_factors()};
}

bool is_of_factors(const std::string& scheme) { return schedule::moves_factors(scheme); }

int factor_owner(int layer, int nodes) { return layer % nodes; }

std::vector<LayerExchange> make_layer_exchanges(const std::string& scheme, const ExchangeShape& shape) {
  std::vector<LayerExchange> made;
  if (!is_of_factors(scheme)) {
    made.push_back({make_dense(scheme, shape), Carries::gradients, shape.parameters});
    return made;
  }
  if (!shape.has_factors) {
    throw schedule::Error(scheme + " sends factors, and layer " + std::to_string(shape.layer) +
                          " has none: name a scheme of gradients for it, or hybrid");
  }
  // A chunk is one node's factors. Biases need no more floats: their gradients are made from the errors.
  const std::uint64_t factors = std::uint64_t{shape.batch} * (std::uint64_t{shape.inputs} + shape.outputs) *
                                static_cast<std::uint64_t>(shape.nodes);
  if (schedule::moves(scheme, schedule::Moves::factors_to_all)) {
    made.push_back({schedule::factor_broadcast(shape.nodes, shape.nodes), Carries::factors, factors});
    return made;
  }
  const int owner = factor_owner(shape.layer, shape.nodes);
  const int chunks = std::min(schedule::default_chunks(scheme, request_of(shape)), chunks_at_most(shape.parameters));
  made.push_back({schedule::factor_gather(shape.nodes, shape.nodes, owner), Carries::factors, factors});
  made.push_back({schedule::owner_broadcast(shape.nodes, chunks, owner), Carries::weights, shape.parameters});
  return made;
}

LayerExchange make_number_exchange(int nodes, std::uint32_t floats) {
  return {schedule::factor_broadcast(nodes, nodes), Carries::numbers,
          std::uint64_t{floats} * static_cast<std::uint64_t>(nodes)};
}

std::uint64_t chunk_bytes_max(const LayerExchange& exchange) {
  const auto chunks = static_cast<std::uint64_t>(exchange.schedule.chunks);
  return (exchange.floats + chunks - 1) / chunks * sizeof(float);
}

std::uint64_t busiest_bytes(const std::vector<LayerExchange>& exchanges) {
  std::uint64_t most = 0;
  for (int rank = 0; rank < exchanges.front().schedule.nodes(); ++rank) {
    std::uint64_t bytes = 0;
    for (const LayerExchange& exchange : exchanges) bytes += sent_bytes(exchange, rank);
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace param_sync
