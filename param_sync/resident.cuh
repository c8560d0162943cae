#pragma once
/// @file Sums that kernels start, by the handle of ResidentSums (resident.hpp). For sources that are compiled for the
/// device. All threads of a block make a call together, with the same arguments, and get the same result.
///
///   __global__ void step(param_sync::SumsHandle sums, float* gradients, ...) {
///     ...                                                        // writes this block's part of the gradients
///     const std::uint64_t sum = param_sync::start_sum(sums, 0);  // of tensor 0
///     ...                                                        // anything that does not touch the tensor
///     const int error = param_sync::await_sum(sums, 0, sum);     // 0: the tensor is the sum of all ranks' tensors
///   }
///
/// On a GPU a kernel that waits needs all its blocks that start the sum to be resident at the same time. If that is not
/// certain, wait in a later kernel on the same stream.

#include "param_sync/executor/exchange_words.cuh"
#include "param_sync/executor/wait.cuh"
#include "param_sync/resident.hpp"

#include "gpusock/device.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Hands over this block's part of a tensor. `tensor`: the tensor's number in the list of ResidentSums. The block has
/// written its part, and neither reads nor writes the tensor until the sum is there. The sum begins when all
/// starting_blocks have called. The call does not wait. Returns the number of the sum: 1 for the first sum of this
/// tensor, 2 for the second, ...
__device__ inline std::uint64_t start_sum(const SumsHandle& sums, std::uint32_t tensor) {
  GPUSOCK_SHARED(number, std::uint64_t);
  __syncthreads();  // the whole block's writes come before its first thread's L9
  if (threadIdx.x == 0) number = executor::hand_over(sums.words[tensor]) / sums.starting[tensor] + 1;
  __syncthreads();
  return number;
}

/// Waits until the sum with this number is in the tensor. Any block of any kernel may wait, also one that started no
/// sum. Returns 0; -ETIMEDOUT after the deadline (a minute if none is given), while the sum goes on; -ECONNRESET if
/// another rank was lost or too late (ResidentSums::check() names it); -ECANCELED if the host ends all sums.
__device__ inline int await_sum(const SumsHandle& sums, std::uint32_t tensor, std::uint64_t number,
                                gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  GPUSOCK_SHARED(result, int);
  const gpusock::Deadline until = executor::begun(deadline);
  __syncthreads();  // all threads have read the result of the previous call
  if (threadIdx.x == 0) {
    result = 0;
    executor::await([&] { return executor::has_version(sums.words[tensor], number); },
                    [&] {
                      if (executor::is_stopped(sums.stop)) {  // first: lanes that the host ends set `failed`, too
                        result = -ECANCELED;
                      } else if (executor::has_ended(*sums.failed, nullptr)) {
                        result = -ECONNRESET;
                      } else if (until.passed()) {
                        result = -ETIMEDOUT;
                      }
                      return result != 0;
                    });
  }
  __syncthreads();
  return result;
}

}  // namespace param_sync
