#pragma once
/// @file What the kernels of a node share, and how they wait for each other.
///
/// All counters only grow and are never reset: "complete for clock t" is "has reached N * (t + 1)". They live in device
/// memory and are used with device scope:
///   label  operation                      order    partner  data protected
///   S1     slice_blocks.fetch_add         acq_rel  S1       a slice of the gradient, for the last block to send
///   S1     slice_blocks.load (mirror)     acquire  S1       a layer's weights: all that read them have done so
///   S2     arrived.fetch_add              acq_rel  S2       all ranks' gradients, for the last block to sum
///   S3     version.store                  release  S4       the owner's new weights
///   S4     version.load                   acquire  S3       the same, before they are sent
///   S5     weights.fetch_add              release  S6       a layer's weights, one owner's part
///   S6     weights.load                   acquire  S5       the same, before the layer's forward kernel reads them
///   S7     failed.compare_exchange        acq_rel  S7       who writes the failure record
///   S8     failure.recorded (system)      release  host     the failure record
///   S9     stop.load (system)             acquire  host     nothing: it only ends waits

#include "failure.hpp"
#include "kernels.cuh"
#include "layout.hpp"

#include "gpusock/device.cuh"

#include <cuda/atomic>

namespace param_sync {

using DeviceWord = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;
using SystemWord = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

/// A layer's counters.
struct LayerCounters {
  std::uint64_t slice_blocks[kNodesMax];  ///< backward blocks that have written their part of the owner's slice
  std::uint64_t arrived;                  ///< gradients for this node's shard: N for each clock
  std::uint64_t version;                  ///< the clock that this node's shard has reached
  std::uint64_t weights;                  ///< parts of the layer's weights that are new: N for each clock
  std::uint64_t pushed_bytes;             ///< gradients sent, headers included
  std::uint64_t pulled_bytes;             ///< weights received
  std::uint64_t gathered_bytes;           ///< gradients received
  std::uint64_t published_bytes;          ///< weights sent
};

/// Times by the device clock. "Communication" of a step lasts from its first push until its last weights are here.
struct Timing {
  std::uint64_t first_push_ns;     ///< when this step's first gradient slice was pushed
  std::uint64_t communicating_ns;  ///< all steps' communication
  std::uint64_t waited_ns;         ///< of that, time that forward kernels stood still for weights
  std::uint64_t pushes;            ///< slices pushed
  std::uint64_t weights;           ///< parts of weights that have come
};

/// Handed to kernels by value. All pointers are to device memory, unless they say otherwise.
struct NodeState {
  gpusock::Net net;
  Layout layout;
  Optimizer optimizer;
  std::int32_t rank = 0;
  std::uint64_t timeout_ns = 0;  ///< for any wait on a peer
  float* weights = nullptr;      ///< layer after layer; own shard: the truth, others': mirrors
  float* gradients = nullptr;    ///< as weights
  float* velocity = nullptr;     ///< as weights; only own shards are used
  float* staging = nullptr;      ///< peers' gradients for own shards: as weights, once for each rank
  LayerCounters* counters = nullptr;
  Timing* timing = nullptr;
  gpusock::Socket* push_sockets = nullptr;   ///< to each owner: gradients out, weights in
  gpusock::Socket* serve_sockets = nullptr;  ///< from each worker: gradients in, weights out
  std::uint64_t* failed = nullptr;           ///< not 0 once a kernel has failed
  Failure* failure = nullptr;                ///< mapped
  std::uint64_t* stop = nullptr;             ///< mapped: the host sets it to end the run

  __device__ float* staged(int from_rank, int layer) const {
    return staging + std::size_t{layout.parameters()} * from_rank + layout.layer[layer].offset;
  }
};

/// The rank that a resident block serves: all but this node's own.
__device__ inline int peer_of_block(const NodeState& node) {
  const int block = static_cast<int>(blockIdx.x);
  return block < node.rank ? block : block + 1;
}

/// Has a kernel failed, or does the host want an end. One thread.
__device__ inline bool ended(const NodeState& node) {
  return DeviceWord(*node.failed).load(cuda::memory_order_relaxed) != 0 ||  // relaxed: only compared
         SystemWord(*node.stop).load(cuda::memory_order_acquire) != 0;      // S9
}

/// Records why the run ends; the first failure counts. One thread.
__device__ inline void fail(const NodeState& node, FailureKind kind, int rank, std::int64_t error,
                            HelloField field = HelloField::none, std::uint64_t ours = 0, std::uint64_t theirs = 0) {
  if (error == ECANCELED || ended(node)) return;  // the end of the run, not its cause
  std::uint64_t expected = 0;
  if (!DeviceWord(*node.failed)
           .compare_exchange_strong(expected, 1, cuda::memory_order_acq_rel,
                                    cuda::memory_order_relaxed)) {  // S7
    return;
  }
  Failure& record = *node.failure;
  record.kind = kind;
  record.rank = rank;
  record.error = static_cast<std::int32_t>(error);
  record.field = field;
  record.ours = ours;
  record.theirs = theirs;
  SystemWord(record.recorded).store(1, cuda::memory_order_release);  // S8
}

/// The block waits until `word` has reached `target`; false where the run ends first. The time waited is added to
/// `waited_ns`, where given, by the block's first thread. Block-collective.
__device__ inline bool wait_until(const NodeState& node, std::uint64_t& word, std::uint64_t target,
                                  std::uint64_t* waited_ns = nullptr) {
  bool there = true;
  if (threadIdx.x == 0 && DeviceWord(word).load(cuda::memory_order_acquire) < target) {  // S1, S4, S6
    const std::uint64_t start_ns = gpusock::clock_ns();
    std::uint64_t now_ns = start_ns;
    unsigned pause_ns = 100;
    while (there && DeviceWord(word).load(cuda::memory_order_acquire) < target) {  // S1, S4, S6
      if (now_ns - start_ns > node.timeout_ns) fail(node, FailureKind::late, -1, ETIMEDOUT);
      there = !ended(node);
      __nanosleep(pause_ns);
      pause_ns = min(2 * pause_ns, 20'000u);  // a wait that lasts is left to others' work
      now_ns = gpusock::clock_ns();
    }
    if (waited_ns != nullptr) *waited_ns += now_ns - start_ns;
  }
  return __syncthreads_and(there) != 0;
}

/// Does the run go on. Block-collective.
__device__ inline bool going_on(const NodeState& node) {
  return __syncthreads_and(threadIdx.x != 0 || !ended(node)) != 0;
}

}  // namespace param_sync
