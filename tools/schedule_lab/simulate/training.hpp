#pragma once
/// @file Trains a model in virtual time: when layers compute, when their gradients move, and what waits for what.

#include "models/model.hpp"
#include "param_sync/cost/network_model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::simulate {

/// When a layer's gradient is exchanged.
enum class Order {
  end,        ///< when the backward pass has ended; the next forward pass waits for all layers
  per_layer,  ///< as soon as it is computed, while earlier layers compute (wait-free backpropagation); in that order
  priority,  ///< as per_layer, but of the messages that wait for a port, those of the layer that the forward pass needs
             ///< first go first
};

/// Reads "end", "per-layer" or "priority". Throws schedule::Error for another word.
Order parse_order(const std::string& word);
const char* to_string(Order order);

/// Chooses for each layer what is less to send: its factors to all nodes, or its gradient.
inline constexpr const char* kHybrid = "hybrid";

/// True if the scheme is only for layers whose gradient has factors: it moves factors, or is kHybrid.
bool is_for_factors(const std::string& scheme);

struct TrainingSettings {
  int nodes = 8;
  int summation_nodes = 0;      ///< summation nodes of byteps, in addition to `nodes`
  std::string scheme = "ring";  ///< scheme of all layers. "sfb", "adam-fc" and "hybrid" are for layers with factors;
                                ///< hybrid takes for each of these what is less to send: factors to all, or `dense`
  std::string dense = "ring";   ///< scheme of the other layers if `scheme` is one of these three
  Order order = Order::priority;
  int batch = 32;              ///< samples of each node in a step
  double flops_per_s = 6e12;   ///< speed of each node
  double unit_bytes = 4e6;     ///< larger gradients are exchanged in parts of at most so many bytes
  double fuse_bytes = 0;       ///< neighbouring layers are exchanged together until they have so many bytes
  double straggler = 1;        ///< the last node takes so many times as long to compute
  double jitter = 0;           ///< each layer on each node takes up to this share longer or shorter
  std::uint64_t seed = 1;      ///< seed of the jitter
  bool free_rebuild = false;   ///< true: rebuilding gradients from factors takes no time
  int steps = 8;               ///< at least 3; times are means over the steps after the first two
  cost::NetworkModel network;  ///< must not have a topology
};

/// How a layer's gradient moves.
struct LayerExchange {
  std::string layer;
  std::string scheme;
  double megabytes = 0;  ///< MB that the busiest node sends for it, by a formula (dense: 2 (P - 1) / P of its size)
};

struct TrainingTimes {
  double step_s = 0;      ///< time from one forward pass to the next
  double compute_s = 0;   ///< time of a step without exchanges, stragglers and jitter
  double bytes_sent = 0;  ///< bytes that the busiest node sends in a step
  double bytes_sent_by_all = 0;
  std::vector<LayerExchange> layers;  ///< layers with parameters

  double efficiency() const { return compute_s / step_s; }
  double exposed_s() const { return step_s - compute_s; }
};

/// Data-parallel, synchronous training. Each node computes all layers one after the other, first forwards, then
/// backwards. A forward layer waits for its own parameters. A backward layer takes twice as long as a forward one. Only
/// parameter servers have optimizer time, for `apply`. Throws schedule::Error if a setting is out of range, or if a
/// scheme cannot be made or used.
TrainingTimes train(const models::Model& model, const TrainingSettings& settings);

}  // namespace param_sync::simulate
