#pragma once
/// @file How the nodes of a training meet, in kernels: each connects to all peers, accepts them all, and compares
/// settings.

#include "param_sync/wire/connecting.cuh"
#include "param_sync/wire/hello.hpp"
#include "training/state.cuh"

namespace param_sync {

/// The settings of a training. Version 9: a model is told by its layers' descriptions.
using NodeHello = Hello<HelloField, static_cast<int>(HelloField::rank), 0x636e79536d617250, 9>;  // "ParmSync"

/// True if this node still tries to reach a peer. One thread.
__device__ inline bool is_connecting(const NodeState& node) {
  for (int peer = 0; peer < node.nodes; ++peer) {
    if (peer != node.rank && !is_open(node.connected_sockets[peer])) return true;
  }
  return false;
}

/// Connects to one peer and compares settings. One block of one thread for each peer.
[[maybe_unused]] static __global__ void connect_peers(NodeState node, NodeHello ours, const gpusock::Endpoint* peers) {
  const int peer = peer_of_block(node);
  NodeHello theirs;
  const gpusock::Socket socket = connect_with_hello(
      node.net, peers[peer], ours, theirs, gpusock::Deadline::after_ns(node.timeout_ns), [&] { return !ended(node); });
  if (socket == kNotNeeded) return;
  if (socket < 0) {
    fail(node, FailureKind::connect, peer, -socket);
    return;
  }
  const HelloField field = ours.difference(theirs);
  if (field != HelloField::none) {
    fail(node, FailureKind::mismatch, peer, EPROTO, field, ours[field], theirs[field]);
  } else if (theirs.rank != peer) {
    fail(node, FailureKind::mismatch, peer, EPROTO, HelloField::rank);
  } else {
    SharedSocket(node.connected_sockets[peer]).store(socket, cuda::memory_order_relaxed);
  }
}

/// The first peer that has not connected here; -1 if all have.
__device__ inline int first_missing(const NodeState& node) {
  for (int peer = 0; peer < node.nodes; ++peer) {
    if (peer != node.rank && !is_open(node.accepted_sockets[peer])) return peer;
  }
  return -1;
}

/// Takes a caller whose hello has come whole. Programs that are no node (a port scanner, a browser) are disconnected
/// and do not count. One thread.
__device__ inline void take_peer(const NodeState& node, const NodeHello& ours, gpusock::Socket socket,
                                 const NodeHello& theirs, gpusock::Deadline deadline) {
  if (!theirs.is_hello() || send_hello(node.net, socket, ours, deadline) != 0) {
    node.net.close(gpusock::this_thread(), socket);
    return;
  }
  const int peer = theirs.rank;
  const HelloField field = ours.difference(theirs);
  if (field != HelloField::none) {
    fail(node, FailureKind::mismatch, peer, EPROTO, field, ours[field], theirs[field]);
    return;
  }
  gpusock::Socket expected = -1;
  const bool other = peer >= 0 && peer < node.nodes && peer != node.rank;
  if (!other || !SharedSocket(node.accepted_sockets[peer])
                     .compare_exchange_strong(expected, socket, cuda::memory_order_relaxed,
                                              cuda::memory_order_relaxed)) {  // relaxed: read by later kernels
    fail(node, FailureKind::mismatch, peer, EPROTO, HelloField::rank);
  }
}

/// Accepts all peers. One block of one thread.
[[maybe_unused]] static __global__ void accept_peers(NodeState node, NodeHello ours, gpusock::Socket listener) {
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  gpusock::Greetings<NodeHello> greetings(node.net, listener, NodeHello::kPatienceNs);
  while (!ended(node) && first_missing(node) >= 0) {
    NodeHello theirs;
    const gpusock::Socket socket = next_caller(
        greetings, theirs, deadline, [&] { return !ended(node); }, [&] { return is_connecting(node); });
    if (socket < 0) {
      fail(node, FailureKind::accept, first_missing(node), -socket);
      return;
    }
    take_peer(node, ours, socket, theirs, deadline);
  }
}

}  // namespace param_sync
