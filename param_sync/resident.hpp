#pragma once
/// @file All-reduce that kernels start: param_sync's public API beside group.hpp. Link gpusock::param_sync.
/// resident.cuh has the calls of kernels.

#include "param_sync/group.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync {

struct ExchangeWords;  ///< how kernels and the blocks that sum meet; opaque

/// What kernels need to start sums and wait for them; by value. Valid as long as its ResidentSums exists.
struct SumsHandle {
  ExchangeWords* words = nullptr;           ///< device memory: one for each tensor
  const std::uint32_t* starting = nullptr;  ///< device memory: by tensor, ResidentTensor::starting_blocks
  std::uint64_t* failed = nullptr;          ///< device memory: not 0 once a lane has failed
  std::uint64_t* stop = nullptr;            ///< mapped: not 0 once the host ends all sums
};

/// A tensor that kernels sum again and again.
struct ResidentTensor {
  float* data = nullptr;  ///< of a gpusock::DeviceBuffer or a gpusock::Mapped
  std::size_t count = 0;  ///< the same on all ranks
  /// How many blocks hand a part of the tensor over: a sum begins when so many have called start_sum().
  std::uint32_t starting_blocks = 1;
};

/// Blocks that stay on the device and sum tensors, each by a schedule of its own, whenever kernels ask: no launch and
/// no host stands between a kernel and the sum. A kernel calls start_sum(); the same one or a later one calls
/// await_sum(), and then has the sum of all ranks' tensors in the same memory (resident.cuh). The next sum of that
/// tensor may start then. Different tensors are summed at the same time.
///
/// Set-up: all ranks make theirs, of tensors of the same sizes in the same order, and then all call start(). Making one
/// waits for no rank, but makes memory: on a GPU that several ranks of a process share, all make theirs before one of
/// them calls start(). The options are those of the group: scheme, deterministic, sizes of rings. The group stays free
/// for its own operations.
///
/// Context::synchronize() waits for these blocks, too: launch kernels on a gpusock::Stream, and synchronize that. One
/// host thread at a time, and not at the same time as calls of the group.
class ResidentSums {
 public:
  /// `timeout_ns`: how long a rank waits for another one in a sum that it has started itself. The group is connected,
  /// and outlives it. Throws gpusock::Error (EINVAL, ENOTCONN, ENOMEM), (ENOBUFS) where the device cannot keep all
  /// blocks resident beside others: it gives half of what it keeps.
  ResidentSums(Group& group, std::vector<ResidentTensor> tensors, std::uint64_t timeout_ns = Group::kTimeoutNs);
  /// Ends all sums: calls that wait for one return -ECANCELED. Other ranks lose this one where they wait for it, so end
  /// with a barrier() of the group. Wait for kernels that use the handle before.
  ~ResidentSums();
  ResidentSums(const ResidentSums&) = delete;
  ResidentSums& operator=(const ResidentSums&) = delete;

  /// Connects to all ranks, waits until they are there, and starts the blocks. Once. Throws as Group::connect() and the
  /// group's operations.
  SumsHandle start();

  /// Throws gpusock::Error where a sum has failed, which kernels see as -ECONNRESET: the message names the rank that
  /// was lost. After a failure no sum ends (but for one of a late rank that has all of its data by then); make new
  /// groups on all ranks.
  void check();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
