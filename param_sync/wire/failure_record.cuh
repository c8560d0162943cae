#pragma once
/// @file Why the kernels of a rank ended early. The first kernel that fails writes this record, and the host reads it.
///
///   label  operation                       order    scope   partner  data protected
///   F1     failed.compare_exchange, load   relaxed  device  F1       nothing: it only decides who writes the record
///   F2     record.recorded.store           release  system  F3       the record
///   F3     host: record.recorded.load      acquire  system  F2       the same
/// F1 may be relaxed: nobody reads anything on its strength. The thread that wins it is the only one that writes the
/// record, which F2 publishes; a thread that finds that another one has failed only returns.

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cstdint>

namespace param_sync {

/// The record, in mapped memory. `What` is trivially copyable.
template <class What>
struct FailureRecord {
  std::uint64_t recorded = 0;  ///< not 0 once `what` is complete
  What what;                   ///< why the kernels ended
};

/// True if a kernel has failed. `failed`: in device memory. One thread.
__device__ inline bool has_failed(std::uint64_t& failed) {
  return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(failed).load(cuda::memory_order_relaxed) !=
         0;  // F1
}

/// Makes `failed` not 0. True for the one thread that was the first to do so.
__device__ inline bool is_first_to_fail(std::uint64_t& failed) {
  std::uint64_t expected = 0;
  return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(failed).compare_exchange_strong(
      expected, 1, cuda::memory_order_relaxed, cuda::memory_order_relaxed);  // F1
}

/// Records `what` if nothing was recorded before; else returns false. One thread.
template <class What>
__device__ inline bool record_failure(std::uint64_t& failed, FailureRecord<What>& record, const What& what) {
  if (!is_first_to_fail(failed)) return false;
  record.what = what;
  cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(record.recorded)
      .store(1, cuda::memory_order_release);  // F2, pairs with F3
  return true;
}

/// True if a failure is recorded; then the record is complete. The host calls it.
template <class What>
bool is_recorded(FailureRecord<What>& record) {
  return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(record.recorded).load(cuda::memory_order_acquire) !=
         0;  // F3, pairs with F2
}

}  // namespace param_sync
