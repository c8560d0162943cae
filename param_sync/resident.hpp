#pragma once
/// @file All-reduce that kernels start: param_sync's public API beside group.hpp. Link gpusock::param_sync.
/// resident.cuh has the calls of kernels.

#include "param_sync/group.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync {

namespace executor {
struct ExchangeWords;  // words through which kernels and the summing blocks synchronize
}

/// What kernels need to start sums and to wait for them. Kernels take it by value. It is valid as long as its
/// ResidentSums exists.
struct SumsHandle {
  executor::ExchangeWords* words = nullptr;  ///< device memory: one entry for each tensor
  const std::uint32_t* starting = nullptr;   ///< device memory: by tensor, ResidentTensor::starting_blocks
  std::uint64_t* failed = nullptr;           ///< device memory: not 0 once a lane has failed
  std::uint64_t* stop = nullptr;             ///< mapped: not 0 once the host ends all sums
};

/// A tensor that kernels sum again and again.
struct ResidentTensor {
  float* data = nullptr;  ///< memory of a gpusock::DeviceBuffer or a gpusock::Mapped
  std::size_t count = 0;  ///< how many floats; the same on all ranks
  /// How many blocks hand over a part of the tensor. A sum begins when this many blocks have called start_sum().
  std::uint32_t starting_blocks = 1;
};

/// Sums of tensors that kernels start, without a launch and without the host. Blocks that stay on the device make the
/// sums, each tensor by a schedule of its own. A kernel calls start_sum(). The same kernel or a later one calls
/// await_sum(), and then has the sum of all ranks' tensors in the same memory (resident.cuh). After that the next sum
/// of this tensor may start. Different tensors are summed at the same time.
///
/// To set it up, all ranks make a ResidentSums, with tensors of the same sizes in the same order; then all call
/// start(). The constructor waits for no rank, but it makes memory: if several ranks of a process share a GPU, all of
/// them make theirs before one calls start(). The options are those of the group: scheme, deterministic, sizes of
/// rings. The group stays free for its own operations.
///
/// Context::synchronize() waits for these blocks, too: launch kernels on a gpusock::Stream, and synchronize that. One
/// host thread at a time calls it, and not at the same time as the group.
class ResidentSums {
 public:
  /// `timeout_ns`: how long a rank waits for another one in a sum that it has started itself. The group is connected,
  /// and outlives this object. Throws gpusock::Error: (EINVAL, ENOTCONN, ENOMEM); (ENOBUFS) the blocks need more than
  /// half of those that the device can keep resident. Ranks that share a device share this half.
  ResidentSums(Group& group, std::vector<ResidentTensor> tensors, std::uint64_t timeout_ns = Group::kTimeoutNs);
  /// Ends all sums: calls that wait for one return -ECANCELED. First wait for the kernels that use the handle, and then
  /// for a barrier() of the group: other ranks that still wait for this rank report it as lost.
  ~ResidentSums();
  ResidentSums(const ResidentSums&) = delete;
  ResidentSums& operator=(const ResidentSums&) = delete;

  /// Connects to all ranks, waits until they are connected, and starts the blocks. Call it once. Throws as
  /// Group::connect() and the group's operations do.
  SumsHandle start();

  /// Throws gpusock::Error if a sum has failed, which kernels see as -ECONNRESET. The message names the rank that was
  /// lost. After a failure make new groups on all ranks: no sum ends, except a sum of a late rank that has all of its
  /// data by then.
  void check();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
