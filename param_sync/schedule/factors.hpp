#pragma once
/// @file Gradients of fully connected layers as factors. Each of K samples adds an outer product u vᵀ to the gradient
/// of M x N weights: u are the errors of its M outputs, v its N inputs. So K (M + N) numbers say as much as M N.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>

namespace param_sync::schedule {

/// A fully connected layer, and the number of samples with which one step trains it.
struct FactorShape {
  double rows = 0;     ///< M: outputs
  double columns = 0;  ///< N: inputs
  double samples = 0;  ///< K: samples of each node
};

/// Floats that the busiest of P nodes sends for one layer, for each way to exchange its gradient.
struct LayerFloats {
  double dense = 0;          ///< ring, mesh and other all-reduces: 2 (P - 1) / P M N
  double broadcast = 0;      ///< `sfb`: (P - 1) K (M + N). (Xie et al., UAI 2016.)
  double factor_server = 0;  ///< `adam-fc`: the server sends the weights to all others. (Chilimbi et al., OSDI 2014.)
};
/// Returns the floats of the three ways for one layer and `nodes` nodes.
LayerFloats layer_floats(const FactorShape& shape, int nodes);

/// Poseidon's rule: true if broadcasting factors sends no more than the dense gradient. (Zhang et al., ATC 2017,
/// algorithm 1.)
bool prefers_factors(const FactorShape& shape, int nodes);

/// Scheme `sfb`: each node sends its part to all others. The result is all_gather; chunks are parts of nodes' factors.
Schedule factor_broadcast(int nodes, int chunks);

/// The first of the two exchanges of `adam-fc` in which the owner makes the gradient from factors: each node sends its
/// part to `owner`. The result is gather; chunks are parts of the nodes' factors.
Schedule factor_gather(int nodes, int chunks, int owner);
/// The second exchange: `owner` sends the weights that it has made to all others. The result is broadcast.
Schedule owner_broadcast(int nodes, int chunks, int owner);

/// Scheme `adam-fc` in one exchange: all nodes send gradients (or their factors) to `owner`, which applies the
/// optimizer and sends the weights back chunk by chunk. The result is parameter_server.
Schedule factor_server(int nodes, int chunks, int owner);

}  // namespace param_sync::schedule
