#pragma once
/// @file How the nodes find each other, in kernels: listen, connect to all peers, accept them all, compare settings.

#include "param_sync/executor/connect_retry.cuh"
#include "training/state.cuh"
#include "gpusock/greetings.cuh"

namespace param_sync {

inline constexpr std::uint64_t kHelloNs = 5'000'000'000;  ///< a peer that connects says hello within this time

/// The first message of each side of a connection: its rank, and the settings that all must share.
struct Hello {
  static constexpr std::uint64_t kMagic = 0x636e79536d617250;  // "ParmSync"
  static constexpr std::uint64_t kVersion = 7;                 ///< 7: last words (watch.cuh)
  std::uint64_t magic = kMagic;
  std::uint64_t value[static_cast<int>(HelloField::rank)] = {};  ///< by HelloField; value[0] is not used
  std::uint64_t rank = 0;

  /// The first field in which the two differ; none where they may work together.
  GPUSOCK_FN HelloField difference(const Hello& other) const {
    for (int i = 1; i < static_cast<int>(HelloField::rank); ++i) {
      if (value[i] != other.value[i]) return static_cast<HelloField>(i);
    }
    return HelloField::none;
  }
  GPUSOCK_FN std::uint64_t& operator[](HelloField field) { return value[static_cast<int>(field)]; }
  GPUSOCK_FN std::uint64_t operator[](HelloField field) const { return value[static_cast<int>(field)]; }
};

/// Where this node listens; in mapped memory.
struct Listening {
  gpusock::Socket socket = -1;
  gpusock::Endpoint at;
};

/// Opens the node's listener. One block of one thread.
[[maybe_unused]] static __global__ void open_listener(gpusock::Net net, gpusock::Endpoint at, Listening* listening) {
  const auto thread = gpusock::this_thread();
  listening->socket = net.listen(thread, at, kNodesMax);
  if (listening->socket >= 0) net.getsockname(listening->socket, listening->at);
}

/// The socket to or from a peer while kernels of the set-up share it. Relaxed: kernels that use the sockets come later.
using SharedSocket = cuda::atomic_ref<gpusock::Socket, cuda::thread_scope_device>;

/// Waits until this node has reached all peers, or has failed. Attempts to reach them end at their deadline. One
/// thread.
__device__ inline void await_reached(const NodeState& node) {
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    const SharedSocket socket(node.connected_sockets[peer]);
    while (peer != node.rank && !ended(node) && socket.load(cuda::memory_order_relaxed) < 0) {
      __nanosleep(1'000'000);
    }
  }
}

/// Sends this node's hello and receives the peer's; 0, or a negated errno. One thread.
__device__ inline std::int64_t exchange(const gpusock::Net& net, gpusock::Socket socket, const Hello& ours,
                                        Hello& theirs, gpusock::Deadline deadline) {
  const auto thread = gpusock::this_thread();
  const std::int64_t sent = net.send(thread, socket, &ours, sizeof ours, gpusock::kWaitAll, deadline);
  if (sent < 0) return sent;
  const std::int64_t got = net.recv(thread, socket, &theirs, sizeof theirs, gpusock::kWaitAll, deadline);
  if (got < 0) return got;
  return got == static_cast<std::int64_t>(sizeof theirs) ? 0 : -ECONNRESET;
}

/// Connects to one peer and compares settings. One block of one thread for each peer.
[[maybe_unused]] static __global__ void connect_peers(NodeState node, Hello ours, const gpusock::Endpoint* peers) {
  const int peer = peer_of_block(node);
  const auto thread = gpusock::this_thread();
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  std::int64_t last_answer = -ETIMEDOUT;  // says more of the peer than that the deadline cut the last attempt short
  while (!ended(node)) {
    gpusock::Socket socket = node.net.connect(thread, peers[peer], deadline);
    Hello theirs;
    const std::int64_t error = socket < 0 ? socket : exchange(node.net, socket, ours, theirs, deadline);
    if (error == 0) {
      const HelloField field = theirs.magic != Hello::kMagic ? HelloField::version : ours.difference(theirs);
      const bool ranks_fit = theirs.rank == static_cast<std::uint64_t>(peer);
      if (theirs.magic == Hello::kMagic && field == HelloField::none && ranks_fit) {
        SharedSocket(node.connected_sockets[peer]).store(socket, cuda::memory_order_relaxed);
        return;
      }
      const HelloField wrong = field == HelloField::none ? HelloField::rank : field;
      fail(node, FailureKind::mismatch, peer, EPROTO, wrong, ours[wrong == HelloField::rank ? HelloField::none : wrong],
           theirs[wrong == HelloField::rank ? HelloField::none : wrong]);
      return;
    }
    if (socket >= 0) node.net.close(thread, socket);
    const bool retry = worth_retrying(error, peers[peer]);
    if (retry) last_answer = error;
    if (!retry || deadline.passed()) {
      fail(node, FailureKind::connect, peer, -(error == -ETIMEDOUT ? last_answer : error));
      return;
    }
    __nanosleep(1'000'000);
  }
}

/// The first peer that has not connected here; -1 if all have.
__device__ inline int first_missing(const NodeState& node) {
  for (int peer = 0; peer < node.layout.nodes; ++peer) {
    const SharedSocket socket(node.accepted_sockets[peer]);
    if (peer != node.rank && socket.load(cuda::memory_order_relaxed) < 0) return peer;
  }
  return -1;
}

/// Takes a caller whose hello has come whole. Programs that are no node (a port scanner, a browser) are disconnected
/// and do not count. One thread.
__device__ inline void take_peer(const NodeState& node, const Hello& ours, gpusock::Socket socket, const Hello& theirs,
                                 gpusock::Deadline deadline) {
  const auto thread = gpusock::this_thread();
  if (theirs.magic != Hello::kMagic ||
      node.net.send(thread, socket, &ours, sizeof ours, gpusock::kWaitAll, deadline) < 0) {
    node.net.close(thread, socket);
    return;
  }
  const int peer = static_cast<int>(theirs.rank);
  const HelloField field = ours.difference(theirs);
  if (field != HelloField::none) {
    fail(node, FailureKind::mismatch, peer, EPROTO, field, ours[field], theirs[field]);
    return;
  }
  gpusock::Socket expected = -1;
  const bool other = peer >= 0 && peer < node.layout.nodes && peer != node.rank;
  if (!other || !SharedSocket(node.accepted_sockets[peer])
                     .compare_exchange_strong(expected, socket, cuda::memory_order_relaxed,
                                              cuda::memory_order_relaxed)) {  // relaxed: read by later kernels
    fail(node, FailureKind::mismatch, peer, EPROTO, HelloField::rank);
  }
}

/// Accepts all peers. One block of one thread.
[[maybe_unused]] static __global__ void accept_peers(NodeState node, Hello ours, gpusock::Socket listener) {
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  gpusock::Greetings<Hello> greetings(node.net, listener, kHelloNs);
  while (!ended(node) && first_missing(node) >= 0) {
    Hello theirs;
    const gpusock::Socket socket = greetings.next(theirs, deadline);
    if (socket < 0) {
      // That a peer cannot be reached from here says more than that it has not come: that failure is recorded first.
      if (socket == -ETIMEDOUT) await_reached(node);
      fail(node, FailureKind::accept, first_missing(node), -socket);
      return;
    }
    take_peer(node, ours, socket, theirs, deadline);
  }
}

}  // namespace param_sync
