#pragma once
/// @file Makes the groups of the asking side start their clocks together. Otherwise the first one would measure while
/// the others still connect.

#include "wire.cuh"

#include <cuda/atomic>

#if !GPUSOCK_ON_GPU
#include <sched.h>
#endif

namespace bench {

/// Set in the gate's word when a group has failed: the others need not wait for it.
inline constexpr std::uint64_t kGateBroken = std::uint64_t{1} << 63;

/// The gate's word: the number of groups that have arrived, and kGateBroken.
using GateRef = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;

GPUSOCK_FN inline void give_way() {
#if GPUSOCK_ON_GPU || GPUSOCK_KERNELS_ON_CPU
  __nanosleep(100);
#else
  sched_yield();
#endif
}

/// Waits until the groups of all sockets have arrived. False if one failed, or at the deadline. One thread calls it.
/// relaxed: no data is handed over; each group reads its own memory only.
GPUSOCK_FN inline bool pass_gate(std::uint64_t* gate, const Job& job) {
  GateRef word(*gate);
  word.fetch_add(1, cuda::memory_order_relaxed);
  const std::uint64_t until_ns = gpusock::clock_ns() + job.limit_ns;
  for (;;) {
    const std::uint64_t state = word.load(cuda::memory_order_relaxed);
    if ((state & kGateBroken) != 0) return false;
    if (state >= job.sockets()) return true;
    if (gpusock::clock_ns() >= until_ns) return false;
    give_way();
  }
}

/// Tells the groups that wait, or will wait, that this one has failed. One thread calls it.
GPUSOCK_FN inline void break_gate(std::uint64_t* gate) {
  if (gate != nullptr) GateRef(*gate).fetch_or(kGateBroken, cuda::memory_order_relaxed);
}

/// Waits for the side's other groups. False if this group must give up: another one did, or the deadline has passed.
template <class Group>
GPUSOCK_FN bool start_together(const Group& group, const Job& job, const Memory& memory) {
  if (memory.gate == nullptr || job.sockets() == 1) return true;
  bool open = true;
  if (group.thread_rank() == 0) {
    open = pass_gate(memory.gate, job);
    if (!open) give_up(*memory.account, Step::start, -ECANCELED);
  }
  return agree(group, memory, open);
}

}  // namespace bench
