#pragma once
/// @file What the lanes of a rank share, and how they wait for each other.
///
/// The words are in device memory and used with device scope; those of L7 and L8 are in mapped memory, between device
/// and host, with system scope. They only grow, but the last lane of a run sets `lanes_ended` to 0. Failures are
/// recorded as wire/failure_record.cuh says (F1 to F3). Of the lanes that fail, the first one to set `failing` records
/// the failure (F1).
///   label  operation                       order    partner  data protected
///   L1     progress[lane].store            release  L2       the lane's part of the tensor, up to its last complete op
///   L2     progress[other].load            acquire  L1       the same, before an op that comes after that one starts
///   L6     lanes_ended.fetch_add           acq_rel  L6       the tensor, for the last lane to publish
///   L7     completed.store                 release  L8       the tensor
///   L8     host: completed.load            acquire  L7       the same, before the host or a later kernel reads it

#include "param_sync/update/state.hpp"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/find_lost.cuh"
#include "param_sync/executor/last_words.cuh"
#include "param_sync/executor/in_place_reservation.cuh"
#include "param_sync/executor/program.hpp"
#include "param_sync/executor/exchange_words.cuh"
#include "param_sync/wire/failure_record.cuh"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cerrno>

namespace param_sync::executor {

/// How `apply` makes weights of sums, at the owner of a chunk. If `weights` is null, sums stay as they are.
struct Apply {
  UpdateStates states;         ///< state of each float of the tensor, or of `owned`
  float* weights = nullptr;    ///< as many weights, in device memory
  bool weights_apart = false;  ///< if false, the tensor gets the weights, too
  Floats owned{};              ///< a run without `apply` makes weights of these at its end; then only they have memory
};

/// One run of a schedule, by value in kernels. Pointers point to device memory, unless their comment says otherwise.
struct Run {
  gpusock::Net net;
  const LaneOp* ops = nullptr;
  const Reached* after = nullptr;
  const LaneOps* lanes = nullptr;
  const int* operands = nullptr;
  float* reorder_buffers = nullptr;  ///< by lane, each with reorder_entries entries
  std::int32_t reorder_entries = 0;
  std::uint64_t reorder_floats = 0;  ///< floats of an entry
  std::int32_t lane_count = 0;
  bool lanes_meet = false;
  const gpusock::Socket* sockets = nullptr;  ///< by channel
  std::int32_t socket_count = 0;
  float* data = nullptr;
  Cut cut;
  Apply apply;
  InPlaceReservation* reservations = nullptr;  ///< reservations of sends that kernels may write in place, or null
  const int* reservation_of_op = nullptr;      ///< by op: the index of its reservation, or schedule::kNobody
  std::int32_t schedule = -1;                  ///< index of the schedule
  std::uint64_t number = 0;                    ///< each rank counts its runs: numbers agree if all run the same ones
  std::uint32_t operation = 0;  ///< the schedule's index and Executor::start()'s tag: the same at all ranks
  std::uint64_t timeout_ns = 0;
  std::uint64_t* progress = nullptr;                   ///< by lane: the run, and how many of its ops are complete
  std::uint64_t* lanes_ended = nullptr;                ///< lanes that have ended this run
  std::uint64_t* failed = nullptr;                     ///< not 0 once a lane of any run has failed
  std::uint64_t* failing = nullptr;                    ///< not 0 once a lane finds out which rank is lost
  std::uint64_t* stop = nullptr;                       ///< mapped, or null: the host sets it to end the run
  bool keeps_sockets = false;                          ///< leaves sockets open at a failure (LastWordsBy::host)
  FailureRecord<ExecutionFailure>* failure = nullptr;  ///< mapped
  LastWords last_words;                                ///< empty: this rank fails without them
  std::uint64_t* completed = nullptr;                  ///< mapped: the last run that has ended well
};

/// The word of a lane that has completed `ops` ops of a run.
GPUSOCK_FN inline std::uint64_t progress_word(std::uint64_t run, std::uint64_t ops) { return run << 32 | ops; }

/// True if a lane has failed, or the host has set `stop`. One thread.
__device__ inline bool has_failed(const Run& run) { return has_ended(*run.failed, run.stop); }

/// Records the first failure, and ends the waits of the other lanes and of the peers. Before that it finds out which
/// rank is lost, and tells the peers. One thread. Never inlined, like the other functions of a run's end: their copies
/// in each op were four fifths of the lanes' code, and took nvcc 18 minutes.
__device__ __noinline__ inline void fail(const Run& run, ExecutionFailure what) {
  if (run.keeps_sockets && (what.error == ECANCELED || has_failed(run))) return;  // a result of the end, not the cause
  what.schedule = run.schedule;
  if (run.last_words.exist()) {  // before others see the failure, since its record is complete only after this
    if (!is_first_to_fail(*run.failing)) return;
    exchange_last_words(run.last_words, run.timeout_ns, what);
  }
  if (!record_failure(*run.failed, *run.failure, what)) return;
  if (run.keeps_sockets) return;
  const auto thread = gpusock::this_thread();
  for (int i = 0; i < run.socket_count; ++i) {
    const gpusock::Socket socket = SharedSocket(run.sockets[i]).get();  // another block may still open channels
    if (socket < 0) continue;
    // A last word that was sent arrives before the connection's end.
    run.net.shutdown(thread, socket, run.last_words.carries(i) ? gpusock::Shutdown::write : gpusock::Shutdown::both);
  }
}

/// True if the run with this number has ended well; then its tensor may be read. The host calls it.
inline bool is_completed(std::uint64_t& completed, std::uint64_t number) {
  return SystemWord(completed).load(cuda::memory_order_acquire) >= number;  // L8, pairs with L7
}

/// The block waits until another lane has completed `ops` ops of this run. Returns false if the run fails first. Waits
/// for messages end at the run's deadline, and name a peer; this wait ends a little later. Block-collective.
__device__ inline bool await_lane(const Run& run, int lane, std::uint64_t ops, gpusock::Deadline deadline) {
  const DeviceWord progress(run.progress[lane]);
  const std::uint64_t wanted = progress_word(run.number, ops);
  return block_awaits([&] { return progress.load(cuda::memory_order_acquire) >= wanted; },  // L2, pairs with L1
                      [&] {
                        if (deadline.passed()) {
                          fail(run, {.kind = ExecutionFailureKind::late, .error = ETIMEDOUT, .lane = lane});
                        }
                        return has_failed(run);
                      });
}

}  // namespace param_sync::executor
