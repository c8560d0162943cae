#pragma once
/// @file Gradients of fully connected layers as factors. Each of K samples adds an outer product u vᵀ to the gradient
/// of M x N weights: u are the errors of its M outputs, v its N inputs. So K (M + N) numbers say as much as M N.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>

namespace param_sync::schedule {

/// A fully connected layer, and what a step trains it with.
struct FactorShape {
  double rows = 0;     ///< M
  double columns = 0;  ///< N
  double samples = 0;  ///< K, of each node
};

/// Floats that the busiest node sends for one layer, where there are so many nodes.
struct LayerFloats {
  double dense = 0;          ///< ring, mesh and others: 2 (P - 1) / P M N
  double broadcast = 0;      ///< `sfb`: (P - 1) K (M + N). (Xie et al., UAI 2016.)
  double factor_server = 0;  ///< `adam-fc`: the server sends the weights to all others. (Chilimbi et al., OSDI 2014.)
};
/// The three ways, for one layer.
LayerFloats layer_floats(const FactorShape& shape, int nodes);

/// Poseidon's rule: true if broadcasting factors sends no more than the dense gradient. (Zhang et al., ATC 2017,
/// algorithm 1.)
bool prefers_factors(const FactorShape& shape, int nodes);

/// `sfb`: everybody sends its part to each other. The result is all_gather; chunks are parts of the nodes' factors.
Schedule factor_broadcast(int nodes, int chunks);

/// The two exchanges of `adam-fc` where the server makes the gradient of factors. Everybody sends its part to `owner`
/// (gather; chunks are parts of the nodes' factors); later the owner sends all others what it has made (broadcast).
Schedule factor_gather(int nodes, int chunks, int owner);
/// The second one: see factor_gather().
Schedule owner_broadcast(int nodes, int chunks, int owner);

/// `adam-fc`: all send gradients (or factors of them) to `owner`, which applies the optimizer and sends the weights
/// back chunk after chunk. The result is parameter_server.
Schedule factor_server(int nodes, int chunks, int owner);

}  // namespace param_sync::schedule
