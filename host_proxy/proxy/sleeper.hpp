#pragma once
/// @file The word by which the engine's thread and its callers agree whether a caller must ring.
///
/// Falling asleep must not miss a commit. Both store, fence, and then look at the other's word:
///   label  operation                                     order    partner
///   E1     engine: store asleep, fence, scan the words   seq_cst  E2
///   E2     caller: commit, fence, load asleep            seq_cst  E1
/// so that either the scan sees the commit or the caller sees the sleeper and rings. The fences alone give this order:
/// the accesses around them are relaxed.

#include "ringbuf/atomics.hpp"

#include <cstdint>

namespace gpusock::proxy {

class Sleeper {
 public:
  /// What wakes the thread. With a higher value more does: credit as well as commits.
  enum Asleep : std::uint64_t { kAwake = 0, kWantsCommits = 1, kWantsCredit = 2 };

  /// Called by the thread: it will sleep unless a look around, after this, finds something.
  void fall_asleep(Asleep wants) {
    Ref(asleep_).store(wants, ringbuf::kRelaxed);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_system);  // E1, pairs with E2
  }

  /// Called by the thread: true if it may sleep now. `look` looks around once more, and says whether it found something
  /// to do; `waits_for_credit` says whether something waits until callers give space back. If only the last look finds
  /// that, callers that give space back do not ring yet: then the thread must look again before it sleeps.
  template <class WaitsForCredit, class Look>
  bool may_sleep(WaitsForCredit waits_for_credit, Look look) {
    const Asleep wants = waits_for_credit() ? kWantsCredit : kWantsCommits;
    fall_asleep(wants);
    return !look() && (wants == kWantsCredit || !waits_for_credit());
  }

  void wake_up() { Ref(asleep_).store(kAwake, ringbuf::kRelaxed); }

  /// Called by a caller after its commit: true if it must ring. If several callers must, one of them gets true: the
  /// thread is rung once, however many commits come before it runs.
  bool must_be_rung(Asleep least) {
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_system);  // E2, pairs with E1
    return Ref(asleep_).load(ringbuf::kRelaxed) >= least && take();
  }

  /// Ends the sleep. Only for callers that have held the engine's lock after the thread fell asleep: the lock makes the
  /// sleep visible to them. If several callers do this, the one that gets true rings.
  bool end_sleep() { return Ref(asleep_).load(ringbuf::kRelaxed) != kAwake && take(); }

 private:
  using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

  /// True for one caller. The others' commits are seen, too: a caller that finds the thread awake has made its fence
  /// before E1 of the next sleep, or would find the thread asleep.
  bool take() { return Ref(asleep_).exchange(kAwake, ringbuf::kRelaxed) != kAwake; }

  std::uint64_t asleep_ = kAwake;
};

}  // namespace gpusock::proxy
