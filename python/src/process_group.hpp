#pragma once
/// @file The back end "gpusock" of torch.distributed.

#include "collectives.hpp"
#include "messages.hpp"
#include "task.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock_torch {

/// One process group's back end: a context of gpusock, a group of param_sync, and messages between pairs of ranks.
/// Collective operations run one after the other, in the order of their calls: on the caller's thread if the call waits
/// for the operation, else on a thread of the group. Sends and receives run beside them. Tensors are on the CPU.
class ProcessGroup : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout_of_operations = kBackendDefaultTimeout)
        : c10d::Backend::Options("gpusock", timeout_of_operations) {}
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override { return c10::make_intrusive<Options>(*this); }

    std::string all_reduce = "auto";  ///< param_sync::GroupOptions::all_reduce
    bool deterministic = false;       ///< param_sync::GroupOptions::deterministic
  };

  /// Where this rank listens, and what it shares with the others.
  struct Place {
    std::string address;              ///< this host's, without a port; all ranks reach it
    std::string secret;               ///< of the group; GPUSOCK_SECRET overrides it
    std::vector<std::int64_t> ranks;  ///< the ranks of the whole program, by rank of the group: for errors
  };

  /// Listens, and meets the other ranks at the store. Connections are made by the first operations. Throws
  /// c10::DistBackendError if a rank does not come.
  ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               const c10::intrusive_ptr<Options>& options, const Place& place);
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "gpusock"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                            std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  /// Waits for all ranks. Rank 0 throws an error that names those that do not come; the others do not pass then.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  /// Bytes that this rank's connections have sent and received so far. Throws std::invalid_argument after shutdown().
  std::pair<std::uint64_t, std::uint64_t> traffic() const;

  /// Ends all operations, now and later: waits throw.
  void abort() override;
  /// Waits for the collective operations that were started, and ends the group.
  void shutdown() override;
  /// As shutdown(), but aborts operations that take longer than `patience`. For the end of the program.
  void shutdown_within(std::chrono::milliseconds patience);

 private:
  using Operation = std::function<void(Collectives&, std::uint64_t timeout_ns)>;
  struct Queued {
    c10::intrusive_ptr<Task> task;
    Operation operation;
    bool by_caller;  // its thread performs it, once it is the first
  };
  struct Call {
    std::chrono::milliseconds timeout;
    bool returns_at_once;  // before the operation has ended
  };

  std::chrono::milliseconds timeout_of(std::chrono::milliseconds given) const;
  WorkPtr start(TaskInfo info, const Call& call, Operation operation);
  WorkPtr receive(Tensors& tensors, int from, int tag);
  void run();
  void perform_first(std::unique_lock<std::mutex>& lock);
  void perform(Queued next);
  void meet(const c10::intrusive_ptr<c10d::Store>& store);
  std::string of_group() const;
  void check_root(const char* what, std::int64_t root) const;

  c10::intrusive_ptr<Options> options_;
  std::vector<std::int64_t> all_ranks_;  // of the whole program, by rank
  pid_t process_;
  std::unique_ptr<gpusock::Context> context_;
  std::unique_ptr<Messages> messages_;
  std::unique_ptr<Collectives> collectives_;
  std::uint64_t sequence_ = 0;
  std::uint64_t monitored_ = 0;  // barriers

  std::mutex mutex_;  // of the next ones
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::deque<Queued> queue_;
  bool busy_ = false, ending_ = false, aborted_ = false, failed_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace gpusock_torch
