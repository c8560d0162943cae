#pragma once
/// @file Sums and copies of tensors between ranks: param_sync's public API. Link gpusock::param_sync.

#include "param_sync/reduction/data_type.hpp"

#include "gpusock/gpusock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace param_sync {

/// How a group works. All ranks pass the same options.
struct GroupOptions {
  /// The scheme of all_reduce: a name (docs/schedules.md; not "blink", "byteps", "hierarchical" or "sfb"), or "auto",
  /// which takes "butterfly" for small tensors, and for large ones "mesh" with up to 6 ranks, and "ring" with more.
  /// Small are up to 8,192 floats, or 65,536 if all ranks listen at the same address, as they share a host. measure()
  /// finds a better size between the two.
  std::string all_reduce = "auto";
  /// If true, all_reduce sums in the order of ranks, ((d0 + d1) + d2) + ..., bit for bit: "auto" then means "chain",
  /// and schemes that add in another order are refused.
  bool deterministic = false;
  std::uint64_t ring_bytes = 512 << 10;  ///< size of each of a connection's two rings: a power of two, 4 KiB to 64 MiB
  std::uint64_t connect_timeout_ns = 30'000'000'000;  ///< how long connecting all ranks may take
  /// If not null, operations are launches of this stream: each begins when the kernels that were launched there before
  /// it have ended, and kernels that are launched there after it begin when it has ended. So a program can launch a
  /// kernel, an operation and another kernel without waiting. Kernels after a failed operation run, too: wait() says
  /// that it has failed. The stream is the context's, and outlives the group. Ranks may differ in it.
  gpusock::Stream* stream = nullptr;
};

/// One rank's tensor, in memory that kernels reach: of a gpusock::DeviceBuffer, of a gpusock::Mapped, or of the
/// program's own. Its address is a multiple of 4 bytes. Elements of 16 bits are moved in pairs, so their count is even.
struct Tensor {
  /// A tensor of no elements.
  Tensor() = default;
  /// A tensor of float32.
  Tensor(float* at, std::size_t elements) : data(at), count(elements) {}
  /// A tensor of int32.
  Tensor(std::int32_t* at, std::size_t elements) : data(at), count(elements), type(DataType::int32) {}
  /// A tensor of another type, such as CUDA's __half.
  Tensor(void* at, std::size_t elements, DataType of) : data(at), count(elements), type(of) {}

  void* data = nullptr;               ///< the first element
  std::size_t count = 0;              ///< number of elements
  DataType type = DataType::float32;  ///< type of the elements
};

/// A part of a tensor: elements [begin, end).
struct TensorPart {
  std::size_t begin = 0;  ///< the first element
  std::size_t end = 0;    ///< after the last one
};

/// Thrown by Group::connect() and Group::from_environment(): this rank could not connect to another one in time, or no
/// route leads there. The other rank may run.
class UnreachableRank : public gpusock::Error {
 public:
  /// Takes the values of its members.
  UnreachableRank(const gpusock::Error& why, int which) : Error(why), rank(which) {}

  int rank;  ///< the other one
};

/// One rank of a group.
///
/// If a launcher has started all ranks, from_environment() makes the group. Otherwise each rank listens, the program
/// tells all ranks all addresses, and each rank connects. Then all ranks start the same operations in the same order,
/// on tensors of the same size and type. Operations are asynchronous and run one after the other. No other code uses a
/// tensor until its operation has ended. One host thread at a time calls a group.
///
/// Each operation fails if it takes longer than its `timeout_ns` from when it begins. After a failure on any rank, make
/// a new group: all operations of all ranks fail, except an operation of a late rank that has all of its data by then.
/// An invalid argument is such a failure, too. Calls throw gpusock::Error; the message names the rank that was lost, or
/// says that it is unknown (docs/groups.md). If a rank does not answer, the ranks that wait for it ask other ranks
/// first. They fail up to 8 s after the deadline.
class Group {
 public:
  /// How long an operation may take if it is given no other limit.
  static constexpr std::uint64_t kTimeoutNs = 30'000'000'000;

  /// Makes and connects the group of all processes that a launcher has started. Launchers are mpirun, srun, torchrun,
  /// Kubernetes and ./run cluster. docs/many_hosts.md lists the variables by which ranks find each other. Without a
  /// launcher it is a group of one rank. Connections use GPUSOCK_LINK's link. It waits twice, for the addresses of all
  /// ranks and for their connections, each time up to `options.connect_timeout_ns`. The context outlives the group.
  ///
  /// Throws gpusock::Error: (EINVAL) a variable is invalid, half set, or contradicts another one; (EACCES) ranks on
  /// several hosts need GPUSOCK_SECRET; (ETIMEDOUT, ECONNREFUSED, …) a rank did not come, or cannot be reached, and the
  /// message names it; (EPROTO) ranks contradict each other; and the errors of the constructor, listen() and connect().
  static Group from_environment(gpusock::Context& context, const GroupOptions& options = {});

  /// Makes rank `rank` of a group of `nodes` ranks (1 to 64). The context outlives the group. Throws gpusock::Error:
  /// (EINVAL) an option is invalid, (ENOBUFS) the device cannot keep all blocks of a scheme resident at the same time.
  Group(gpusock::Context& context, int rank, int nodes, const GroupOptions& options = {});
  /// Waits for operations that are in flight, and closes the connections.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;   ///< this process's rank, from 0
  int nodes() const;  ///< how many ranks there are

  /// Listens at `at`, which also names the link. Returns the address, with the port that was picked for port 0. Throws
  /// gpusock::Error with what Net::listen() returns.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  /// Connects to all ranks, and waits until they are connected. `addresses`: where each rank listens, by rank. Throws
  /// UnreachableRank (ETIMEDOUT, EHOSTUNREACH, ENETUNREACH); gpusock::Error: (ETIMEDOUT) a rank has not connected, and
  /// may itself wait for another one; (ECONNREFUSED, ...) a rank does not listen; (EPROTO) a rank was started with
  /// other options; (EINVAL) the group is connected already. The message names the rank. Ranks do not tell each other
  /// here why they fail, so the message may name a healthy rank (docs/groups.md).
  void connect(const std::vector<gpusock::Endpoint>& addresses);

  /// Makes and connects a group of the ranks that pass the same color (0 to 2^24 - 1), in the order of their ranks
  /// here, with this group's options (as MPI_Comm_split), but with a stream of its own. It is an operation of this
  /// group that waits: all ranks call it between the same two other operations. The new group has connections of its
  /// own. The call waits three times, each time up to `options.connect_timeout_ns`. Throws as the operations and
  /// connect() do, and gpusock::Error (EINVAL) for an invalid color; after that, operations of this group fail on all
  /// ranks. Ranks that share a GPU in one process must not call it: it allocates memory, which may wait for the kernels
  /// of another rank, and that rank waits for this one.
  Group split(int color);

  /// Times the two schemes of "auto" at several sizes on the running links. From then on all_reduce() takes the faster
  /// one. All ranks call it, and choose the same. It makes about 75 small sums, which share one `timeout_ns`, in 1 MiB
  /// of device memory that a group with "auto" holds. Returns the number of floats up to which all_reduce() takes
  /// "butterfly". The next run of the program may measure another size. So sums near that size may differ in their last
  /// bits from one run to the next. Throws as the operations do, and gpusock::Error (EINVAL) if the options leave no
  /// choice; then all ranks fail.
  std::size_t measure(std::uint64_t timeout_ns = kTimeoutNs);

  /// Each operation returns its number, which wait() and done() take. Operations on a tensor throw gpusock::Error
  /// (EINVAL) for a tensor at a null pointer or an address that is no multiple of 4, an odd count of 16-bit elements,
  /// an average of int32, a type or operation that does not exist, and a root that is no rank; then operations of this
  /// group fail on all ranks.
  using Operation = std::uint64_t;
  /// All ranks get the reduction of all tensors, the same bits on each (but for float32 that are not numbers).
  Operation all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, std::uint64_t timeout_ns = kTimeoutNs);
  /// Each rank gets its part() of the reduction. The rest of the tensor holds intermediate results afterwards.
  Operation reduce_scatter(const Tensor& tensor, ReduceOp op = ReduceOp::sum, std::uint64_t timeout_ns = kTimeoutNs);
  /// All ranks get each rank's part() of the tensor.
  Operation all_gather(const Tensor& tensor, std::uint64_t timeout_ns = kTimeoutNs);
  /// All ranks get the tensor of rank `root`.
  Operation broadcast(const Tensor& tensor, int root, std::uint64_t timeout_ns = kTimeoutNs);
  /// The operation ends when all ranks have started it.
  Operation barrier(std::uint64_t timeout_ns = kTimeoutNs);

  /// Waits until the operation has ended. Throws gpusock::Error: (ECONNRESET, EPIPE) another rank has failed or ended,
  /// (ETIMEDOUT) the operation took too long, (EPROTO) another rank has started another operation or has a tensor of
  /// another size or type, (ECANCELED) the context ends, (EFAULT) a kernel has failed, (EINVAL) no operation has this
  /// number.
  void wait(Operation operation);
  /// True if the operation has ended, also if it has failed. Throws gpusock::Error (EINVAL): no operation has this
  /// number.
  bool done(Operation operation);

  /// The part of a tensor of `count` elements that belongs to a rank: [count * rank / nodes, count * (rank + 1) /
  /// nodes) for elements of 32 bits. Elements of 16 bits are divided in pairs. Throws gpusock::Error (EINVAL) if there
  /// is no such rank, or for an odd count of 16-bit elements.
  TensorPart part(int rank, std::size_t count, DataType type = DataType::float32) const;

 private:
  friend class Parameters;
  friend class ResidentSums;
  friend class Store;
  struct Impl;
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
