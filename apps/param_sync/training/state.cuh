#pragma once
/// @file What the kernels of a node share, and how they wait for each other.
///
/// All counters only grow and are never reset: "complete for clock t" is "has reached N * (t + 1)". They live in device
/// memory and are used with device scope; S8, S9, S11, S12, S16 and S17 are between host and device, in mapped memory,
/// with system scope:
///   label  operation                      order    partner  data protected
///   S1     slice_blocks.fetch_add         acq_rel  S1, S10  a slice of the gradient, for the last block to send
///   S2     arrived.fetch_add              acq_rel  S2       all ranks' gradients, for the last block to sum
///   S3     version.store                  release  S4       the owner's new weights
///   S4     version.load                   acquire  S3       the same, before they are sent
///   S5     weights.fetch_add              release  S6       a layer's weights, one owner's part
///   S6     weights.load                   acquire  S5       the same, before the layer's forward kernel reads them
///   S7     failed.compare_exchange, load  relaxed  S7       nothing: it only decides who writes the failure record
///   S8     failure.recorded: store        release  S11      the failure record
///   S9     stop.load                      relaxed  S12      nothing: it only ends waits
///   S10    slice_blocks.load (mirror)     acquire  S1       a layer's weights: all that read them have done so
///   S11    host: failure.recorded: load   acquire  S8       the failure record
///   S12    host: stop.store               relaxed  S9       nothing: it only ends waits
///   S13    timing.weights.fetch_add       acq_rel  S13      when the step's first push was, for who has its last part
///   S16    step_progress.*: store         relaxed  S17      nothing: it only says how far this node is
///   S17    host: step_progress.*: load    relaxed  S16      nothing: it is only reported
/// S7 and S9 are relaxed because nobody reads anything on their strength: the one who wins S7 is the only writer of the
/// record, which S8 publishes, and who finds that the run ends only returns. So are S16 and S17: each word counts by
/// itself.

#include "arithmetic/kernels.cuh"
#include "executor/handover.cuh"
#include "layout/layout.hpp"
#include "report/failure.hpp"

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
  std::uint64_t pushes;            ///< slices pushed
  std::uint64_t weights;           ///< parts of weights that have come
};

/// How far this node has come with each other one, by rank: what StepProgress says. Each word is written by one thread
/// at a time.
struct StepProgressWords {
  std::uint64_t gathered[kNodesMax] = {};
  std::uint64_t pulled[kNodesMax] = {};
  std::uint64_t pushing[kNodesMax] = {};
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
  gpusock::Socket* push_sockets = nullptr;       ///< to each owner: gradients out, weights in
  gpusock::Socket* serve_sockets = nullptr;      ///< from each worker: gradients in, weights out
  std::uint64_t* failed = nullptr;               ///< not 0 once a kernel has failed
  Failure* failure = nullptr;                    ///< mapped
  std::uint64_t* stop = nullptr;                 ///< mapped: the host sets it to end the run
  StepProgressWords* step_progress = nullptr;    ///< mapped
  executor::ExchangeWords* exchanges = nullptr;  ///< by bucket, where schedules exchange gradients; else none
  std::uint8_t exchange_of[kLayersMax] = {};     ///< by layer: the index of its bucket

  __device__ float* staged(int from_rank, int layer) const {
    return staging + std::size_t{layout.parameters()} * from_rank + layout.layer[layer].offset;
  }
};

/// The rank that a resident block serves: all but this node's own.
__device__ inline int peer_of_block(const NodeState& node) {
  const int block = static_cast<int>(blockIdx.x);
  return block < node.rank ? block : block + 1;
}

/// The part that a layer's gradients and weights of a clock are: counted in the order in which they are pushed.
__device__ inline std::uint64_t part_of(const NodeState& node, int layer, std::uint64_t clock) {
  return clock * node.layout.layers + (node.layout.layers - 1 - layer);
}

/// Tells the host how far this node is, should it ask. One thread.
__device__ inline void publish(std::uint64_t& word, std::uint64_t value) {
  SystemWord(word).store(value, cuda::memory_order_relaxed);  // S16, pairs with S17
}

/// What publish() has written. The host's.
inline std::uint64_t published(std::uint64_t& word) {
  return SystemWord(word).load(cuda::memory_order_relaxed);  // S17, pairs with S16
}

/// True if a kernel has failed, or the host wants the run to end. One thread.
__device__ inline bool ended(const NodeState& node) {
  return DeviceWord(*node.failed).load(cuda::memory_order_relaxed) != 0 ||  // S7
         SystemWord(*node.stop).load(cuda::memory_order_relaxed) != 0;      // S9, pairs with S12
}

/// Records why the run ends; the first failure counts. One thread.
__device__ inline void fail(const NodeState& node, FailureKind kind, int rank, std::int64_t error,
                            HelloField field = HelloField::none, std::uint64_t ours = 0, std::uint64_t theirs = 0) {
  if (error == ECANCELED || ended(node)) return;  // the end of the run, not its cause
  std::uint64_t expected = 0;
  const DeviceWord failed(*node.failed);
  if (!failed.compare_exchange_strong(expected, 1, cuda::memory_order_relaxed, cuda::memory_order_relaxed)) {  // S7
    return;
  }
  Failure& record = *node.failure;
  record.kind = kind;
  record.rank = rank;
  record.error = static_cast<std::int32_t>(error);
  record.field = field;
  record.ours = ours;
  record.theirs = theirs;
  SystemWord(record.recorded).store(1, cuda::memory_order_release);  // S8, pairs with S11
}

/// True if a kernel has failed; then the record is whole. For the host.
inline bool has_failed(Failure& record) {
  return SystemWord(record.recorded).load(cuda::memory_order_acquire) != 0;  // S11, pairs with S8
}

/// Ends whatever kernels wait for. The host's; any thread.
inline void end_waits(std::uint64_t& stop) {
  SystemWord(stop).store(1, cuda::memory_order_relaxed);  // S12, pairs with S9
}

/// This node has trained to its end. The host's.
inline void end_watch(std::uint64_t& ending) {
  SystemWord(ending).store(1, cuda::memory_order_relaxed);  // relaxed: see watch_nodes()
}

/// The block waits until `reached()`, by which its first thread looks at a counter; false where the run ends first. The
/// time waited is added to `waited_ns`, where given, by the block's first thread. Block-collective.
template <class Reached>
__device__ inline bool wait_until(const NodeState& node, Reached reached, std::uint64_t* waited_ns = nullptr) {
  bool there = true;
  if (threadIdx.x == 0 && !reached()) {
    const std::uint64_t start_ns = gpusock::clock_ns();
    std::uint64_t now_ns = start_ns;
    unsigned pause_ns = 100;
    while (!reached()) {
      if (now_ns - start_ns > node.timeout_ns) fail(node, FailureKind::late, -1, ETIMEDOUT);
      there = !ended(node);
      if (!there) break;
      __nanosleep(pause_ns);
      pause_ns = min(2 * pause_ns, 20'000u);  // a wait that lasts is left to others' work
      now_ns = gpusock::clock_ns();
    }
    if (waited_ns != nullptr) *waited_ns += now_ns - start_ns;
  }
  return __syncthreads_and(there) != 0;
}

/// True if the run goes on. Block-collective.
__device__ inline bool going_on(const NodeState& node) {
  return __syncthreads_and(threadIdx.x != 0 || !ended(node)) != 0;
}

}  // namespace param_sync
