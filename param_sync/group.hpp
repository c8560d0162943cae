#pragma once
/// @file Sums and copies of tensors between ranks: param_sync's public API. Link gpusock::param_sync.

#include "gpusock/gpusock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace param_sync {

/// The same on all ranks.
struct GroupOptions {
  /// How all_reduce goes: a scheme's name (docs/schedules.md; not "blink", "byteps", "hierarchical" or "sfb"), or
  /// "auto": by the tensor's size "butterfly" or "ring"; measure() finds out from which size on.
  std::string all_reduce = "auto";
  /// all_reduce sums in the order of ranks, ((d0 + d1) + d2) + ..., bit for bit: "auto" then means "chain", and schemes
  /// that add in another order are refused.
  bool deterministic = false;
  std::uint64_t ring_bytes = 512 << 10;               ///< of each connection, each way; a power of two, 4 KiB to 64 MiB
  std::uint64_t connect_timeout_ns = 30'000'000'000;  ///< for all ranks to be connected
};

/// A part of a tensor: floats [begin, end).
struct TensorPart {
  std::size_t begin = 0;  ///< the first float
  std::size_t end = 0;    ///< after the last one
};

/// One rank of a group. Set-up: from_environment(), where a launcher has started all ranks. Else each rank listens, the
/// program tells all ranks all addresses, each rank connects. Then all ranks start the same operations in the same
/// order, on tensors of the same size. Operations are asynchronous, and go one after the other. Tensors are float
/// arrays that kernels reach: the memory of a gpusock::DeviceBuffer or a gpusock::Mapped; no other code uses them until
/// the operation has ended. One host thread at a time.
///
/// Each operation fails if it takes longer than its `timeout_ns` from when it begins. After a failure on any rank all
/// operations of all ranks fail (but for one of a late rank that has all of its data by then): make a new group. An
/// invalid argument is such a failure, too. Calls throw gpusock::Error; the message names the rank that was lost, or
/// says that it is unknown (docs/groups.md). A rank that waits for one that does not answer asks around first: it fails
/// up to 8 s after the deadline.
class Group {
 public:
  /// How long an operation may take that is given no other limit.
  static constexpr std::uint64_t kTimeoutNs = 30'000'000'000;

  /// This process's rank of the group of all processes that a launcher has started, connected: mpirun, srun, torchrun,
  /// Kubernetes, ./run cluster. By which variables ranks find each other: docs/many_hosts.md. Connections are on
  /// GPUSOCK_LINK's link. A group of one rank where no launcher is at work. Each of the two waits, for the addresses of
  /// all ranks and for their connections, takes `options.connect_timeout_ns` at most. Throws gpusock::Error: (EINVAL) a
  /// variable is invalid, half set, or contradicts another one; (EACCES) ranks on several hosts need GPUSOCK_SECRET;
  /// (ETIMEDOUT, ECONNREFUSED, …) who did not come, or cannot be reached; (EPROTO) ranks contradict each other; and as
  /// the constructor, listen() and connect(). The context outlives the group.
  static Group from_environment(gpusock::Context& context, const GroupOptions& options = {});

  /// Rank `rank` of `nodes` (1 to 64). The context outlives the group. Throws gpusock::Error (EINVAL) where an option
  /// is invalid, (ENOBUFS) where the device cannot keep all blocks of a scheme resident at the same time.
  Group(gpusock::Context& context, int rank, int nodes, const GroupOptions& options = {});
  /// Waits for operations that are in flight, and closes the connections.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;   ///< this one
  int nodes() const;  ///< how many ranks there are

  /// Listens at `at`, which also names the link, and says where: port 0 is replaced.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  /// Connects to the ranks that listen at these addresses, by rank; waits until all are there. Throws gpusock::Error
  /// (ETIMEDOUT, ECONNREFUSED, ...): which rank cannot be reached, or has not come and may itself wait for another;
  /// (EPROTO) which rank was started with other options; (EINVAL) the group is connected already. Ranks do not tell
  /// each other why they fail here, so a rank may name one that is as it should be (docs/groups.md).
  void connect(const std::vector<gpusock::Endpoint>& addresses);

  /// The group of those ranks that call with the same color (0 to 2^24 - 1), connected, with this group's options; in
  /// the order of their ranks here (as MPI_Comm_split). An operation of this group, which waits: all ranks call it
  /// between the same two others. It opens connections of its own, and takes `options.connect_timeout_ns` for each of
  /// three waits at most. Throws as the operations and connect(), and gpusock::Error (EINVAL) where there is no such
  /// color; where it throws, operations of this group fail on all ranks. Not for ranks that share a GPU in one process:
  /// it makes memory, which may wait for the kernels of another rank that waits for this one.
  Group split(int color);

  /// Times the two schemes of "auto" at several sizes on the running links, and lets all_reduce() take the faster one
  /// from then on. All ranks call it, and choose the same; it takes some 80 small sums, which have `timeout_ns`
  /// together. (A group of "auto" holds 1 MiB of device memory for it.) Returns up to how many floats it is
  /// "butterfly"; without a measurement that is 8,192. Sums of the sizes between may then differ in their last bits
  /// from one run of the program to the next. Throws as the operations, and gpusock::Error (EINVAL) where the options
  /// leave no choice: then all ranks fail.
  std::size_t measure(std::uint64_t timeout_ns = kTimeoutNs);

  /// Each operation returns its number, which wait() and done() take.
  using Operation = std::uint64_t;
  /// All ranks get the sum of all tensors.
  Operation all_reduce(float* data, std::size_t count, std::uint64_t timeout_ns = kTimeoutNs);
  /// Each rank gets its part() of the sum. The rest of the tensor holds intermediate sums afterwards.
  Operation reduce_scatter(float* data, std::size_t count, std::uint64_t timeout_ns = kTimeoutNs);
  /// All ranks get each rank's part() of the tensor.
  Operation all_gather(float* data, std::size_t count, std::uint64_t timeout_ns = kTimeoutNs);
  /// All ranks get the tensor of rank `root`.
  Operation broadcast(float* data, std::size_t count, int root, std::uint64_t timeout_ns = kTimeoutNs);
  /// Ends when all ranks have started it.
  Operation barrier(std::uint64_t timeout_ns = kTimeoutNs);

  /// Waits until the operation has ended. Throws gpusock::Error: (ECONNRESET, EPIPE) another rank has failed or ended,
  /// (ETIMEDOUT), (EPROTO) another rank has started another operation or has a tensor of another size, (ECANCELED) the
  /// context ends, (EFAULT) a kernel has failed, (EINVAL) no operation has this number.
  void wait(Operation operation);
  /// True if it has ended, well or not. Throws gpusock::Error (EINVAL): no operation has this number.
  bool done(Operation operation);

  /// The part of a tensor of `count` floats that belongs to a rank: [count * rank / nodes, count * (rank + 1) / nodes).
  /// Throws gpusock::Error (EINVAL) where there is no such rank.
  TensorPart part(int rank, std::size_t count) const;

 private:
  friend class Parameters;
  friend class ResidentSums;
  struct Impl;
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
