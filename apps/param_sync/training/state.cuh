#pragma once
/// @file What the kernels of a node share, and how they wait for each other.
///
/// See param_sync/executor/exchange_words.cuh for how they exchange gradients and weights, and
/// param_sync/wire/failure_record.cuh for how a failure is recorded. Host and device share these words, in mapped
/// memory, with system scope:
///   label  operation                      order    partner  data protected
///   S9     stop.load                      relaxed  S12      nothing: it only ends waits
///   S12    host: stop.store               relaxed  S9       nothing: it only ends waits
///   S18    said.store                     release  S19      what peers were told: the host ends the connections next
///   S19    host: said.load                acquire  S18      as S18
/// S9 is relaxed because it guards no data: a kernel that finds that the run ends only returns.

#include "layers/layer.hpp"
#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/last_words.cuh"
#include "param_sync/wire/failure_record.cuh"
#include "param_sync/executor/wait.cuh"
#include "layout/layout.hpp"
#include "report/failure.hpp"

#include "gpusock/device.cuh"

#include <cuda/atomic>

namespace param_sync {

using executor::await;
using executor::SystemWord;

/// What kernels take by value. All pointers point to device memory, unless their comments say otherwise.
struct NodeState {
  gpusock::Net net;
  std::int32_t nodes = 0;
  std::int32_t rank = 0;
  std::uint64_t timeout_ns = 0;                  ///< for any wait on a peer
  float* weights = nullptr;                      ///< of all layers, one after the other
  float* gradients = nullptr;                    ///< in the order of `weights`
  UpdateStates states;                           ///< in the order of `weights`; used for weights that this node makes
  executor::LastWords words;                     ///< to and from all other nodes
  std::uint64_t* failed = nullptr;               ///< not 0 once a kernel has failed
  FailureRecord<Failure>* failure = nullptr;     ///< mapped memory
  std::uint64_t* stop = nullptr;                 ///< mapped memory: the host sets it to end the run
  executor::ExchangeWords* exchanges = nullptr;  ///< by bucket
  std::int32_t exchange_count = 0;
  executor::ExchangeTimes* times = nullptr;
};

/// A layer, which kernels take by value. `Kind` is one of AnyLayer's types.
template <class Kind>
struct NodeLayer {
  Kind kind;
  std::uint32_t offset = 0;   ///< index of its first parameter in the model
  std::int32_t exchange = 0;  ///< the bucket that brings its weights
};

/// True if a kernel has failed, or the host wants the run to end. One thread.
__device__ inline bool ended(const NodeState& node) {
  return has_failed(*node.failed) || SystemWord(*node.stop).load(cuda::memory_order_relaxed) != 0;  // S9, pairs with
                                                                                                    // S12
}

/// Records why the run ends; the first failure counts. One thread.
__device__ inline void fail(const NodeState& node, const Failure& what) {
  if (what.error == ECANCELED || ended(node)) return;  // this follows from the end of the run, and is not its cause
  record_failure(*node.failed, *node.failure, what);
}

__device__ inline void fail(const NodeState& node, FailureKind kind, int rank, std::int64_t error) {
  fail(node, Failure{kind, rank, static_cast<std::int32_t>(error)});
}

/// Ends all waits of kernels. For the host; any thread may call it.
inline void end_waits(std::uint64_t& stop) {
  SystemWord(stop).store(1, cuda::memory_order_relaxed);  // S12, pairs with S9
}

/// Notes that the peers have been told this node's last word. One thread.
__device__ inline void note_said(std::uint64_t& said) {
  SystemWord(said).store(1, cuda::memory_order_release);  // S18, pairs with S19
}

/// True once a kernel has told the peers this node's last word. For the host.
inline bool has_said(std::uint64_t& said) {
  return SystemWord(said).load(cuda::memory_order_acquire) != 0;  // S19, pairs with S18
}

/// Notes that this node has completed its training. For the host.
inline void end_watch(std::uint64_t& ending) {
  SystemWord(ending).store(1, cuda::memory_order_relaxed);  // relaxed: see watch_nodes()
}

/// The block waits until `reached()`, which its first thread calls to look at a counter. Returns false if the run ends
/// first. The first thread adds the time waited to `waited_ns`, if that is given. Block-collective.
template <class Reached>
__device__ inline bool wait_until(const NodeState& node, Reached reached, std::uint64_t* waited_ns = nullptr) {
  bool there = true;
  if (threadIdx.x == 0 && !reached()) {
    const std::uint64_t start_ns = gpusock::clock_ns();
    std::uint64_t now_ns = start_ns;
    const auto reached_now = [&] {
      now_ns = gpusock::clock_ns();
      return reached();
    };
    there = await(reached_now, [&] {
      if (now_ns - start_ns > node.timeout_ns) fail(node, FailureKind::late, -1, ETIMEDOUT);
      return ended(node);
    });
    if (waited_ns != nullptr) *waited_ns += now_ns - start_ns;
  }
  return __syncthreads_and(there) != 0;
}

/// The block waits until an exchange has ended all steps before `clock`: the weights that it brings are then those of
/// step `clock`. Returns false if the run ends first. Block-collective.
__device__ inline bool wait_for_version(const NodeState& node, int exchange, std::uint64_t clock,
                                        std::uint64_t* waited_ns = nullptr) {
  return wait_until(
      node, [&] { return executor::has_version(node.exchanges[exchange], clock); }, waited_ns);
}

/// The same for the weights of all exchanges.
__device__ inline bool wait_for_versions(const NodeState& node, std::uint64_t clock,
                                         std::uint64_t* waited_ns = nullptr) {
  for (int exchange = 0; exchange < node.exchange_count; ++exchange) {
    if (!wait_for_version(node, exchange, clock, waited_ns)) return false;
  }
  return true;
}

/// True if the run goes on. Block-collective.
__device__ inline bool going_on(const NodeState& node) {
  return __syncthreads_and(threadIdx.x != 0 || !ended(node)) != 0;
}

}  // namespace param_sync
