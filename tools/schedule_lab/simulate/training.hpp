#pragma once
/// @file Training of a model in virtual time: when layers compute, when their gradients move, and what waits for what.

#include "models/model.hpp"
#include "param_sync/cost/network_model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::simulate {

/// When a layer's gradient is exchanged.
enum class Order {
  end,        ///< when the backward pass has ended; the next forward pass waits for all layers
  per_layer,  ///< when it is there, while earlier layers compute (wait-free backpropagation); first come, first served
  priority,  ///< the same, but of messages that wait for a port those of the layer that the forward pass needs first go
             ///< first
};

/// "end", "per-layer", "priority". Throws schedule::Error.
Order parse_order(const std::string& word);
const char* to_string(Order order);

/// What chooses for each layer what sends less: its factors to all, or its gradient.
inline constexpr const char* kHybrid = "hybrid";

/// True if layers whose gradient has factors are exchanged by these: by a scheme that moves factors, or by kHybrid.
bool is_for_factors(const std::string& scheme);

struct TrainingSettings {
  int nodes = 8;
  int summation_nodes = 0;      ///< of byteps, besides
  std::string scheme = "ring";  ///< of all layers; or "sfb", "adam-fc" or "hybrid": of the layers whose gradient has
                                ///< factors. hybrid takes for each layer what sends less: factors to all, or `dense`
  std::string dense = "ring";   ///< then of the other layers
  Order order = Order::priority;
  int batch = 32;              ///< samples of each node in a step
  double flops_per_s = 6e12;   ///< of each node
  double unit_bytes = 4e6;     ///< larger gradients are exchanged in parts of at most so many bytes
  double fuse_bytes = 0;       ///< neighbouring layers are exchanged together until they have so many bytes
  double straggler = 1;        ///< the last node takes so many times as long to compute
  double jitter = 0;           ///< each layer on each node takes up to this share longer or shorter
  std::uint64_t seed = 1;      ///< of the jitter
  bool free_rebuild = false;   ///< gradients are rebuilt from factors in no time
  int steps = 8;               ///< at least 3; times are means of the steps after the first two
  cost::NetworkModel network;  ///< without a topology
};

/// How a layer's gradient moves.
struct LayerExchange {
  std::string layer;
  std::string scheme;
  double megabytes = 0;  ///< that the busiest node sends for it: the closed form (dense: 2 (P - 1) / P of its size)
};

struct TrainingTimes {
  double step_s = 0;      ///< from forward pass to forward pass
  double compute_s = 0;   ///< of a step without exchanges, stragglers and jitter
  double bytes_sent = 0;  ///< by the busiest node in a step
  double bytes_sent_by_all = 0;
  std::vector<LayerExchange> layers;  ///< those with parameters

  double efficiency() const { return compute_s / step_s; }
  double exposed_s() const { return step_s - compute_s; }
};

/// Data-parallel, synchronous training: each node computes all layers, forwards and then backwards, one after the
/// other; a forward layer waits for its own parameters. A backward layer takes twice as long as a forward one.
/// Optimizer time is that of `apply`, of parameter servers only. Throws schedule::Error where a setting is out of
/// range, or a scheme cannot be made or used.
TrainingTimes train(const models::Model& model, const TrainingSettings& settings);

}  // namespace param_sync::simulate
