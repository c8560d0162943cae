// Counting a group into a socket for longer than a call (OwnedSocket).
#pragma once

#include <exception>

namespace gpusock::detail {

/// Counts an owner in. Returns 0, -EBADF or -ENOMEM. One thread calls it.
GPUSOCK_FN_APART inline int enter_owner(const Side& side, Socket socket) {
  CallerSlot* slot = enter(side, socket);
  if (slot == nullptr) return -EBADF;
  note(side, Unfinished::nothing, socket);  // the owner stays counted in after the call
  if (keep_owner(side, socket)) return 0;
  count_out(side, socket, *slot);
  return -ENOMEM;
}

/// Ends an owner's open reservation and peek; otherwise they would remain in the slot's next socket. `holds`: kHoldsTx,
/// kHoldsRx.
GPUSOCK_FN inline void end_holds(const Side& side, Socket socket, CallerSlot& slot, unsigned holds) {
  // Relaxed: the owner's own words; words of other holders are only compared.
  const auto by_owner = [socket](std::uint64_t& held) {
    const std::uint64_t word = DeviceRef(held).load(ringbuf::kRelaxed);
    return word >> 32 == static_cast<std::uint64_t>(socket) && (word & kHeldByOwner) != 0;
  };
  if ((holds & kHoldsTx) != 0 && by_owner(slot.tx_held)) abort_one(side, socket);
  if ((holds & kHoldsRx) != 0 && by_owner(slot.rx_held)) release_one(side, socket, 0);
}

/// Counts the owner of side.owned out. One thread calls it.
GPUSOCK_FN_APART inline void leave_owner(const Side& side) {
  const Socket socket = side.owned;
  CallerSlot& slot = side.slots[table::slot_of(socket)];
  end_holds(side, socket, slot, *side.owner_holds);
  drop_owner(side, socket);
  count_out(side, socket, slot);
}

/// True if an exception passes through a kernel. The thread then makes no more calls with its group, and the end of the
/// launch counts it out (end_unfinished()).
GPUSOCK_FN inline bool leaves_by_exception(const Side& side) {
#if GPUSOCK_ON_GPU
  (void)side;
  return false;
#else
  return std::uncaught_exceptions() != 0 && running_block(side) >= 0;
#endif
}

#if !GPUSOCK_ON_GPU
/// Ends what a thread had begun (`what`) when a fault ended its kernel.
inline void end_unfinished(const Side& side, Unfinished what, std::int32_t handle) {
  CallerSlot& slot = side.slots[table::slot_of(handle)];
  // It is not known any more what the owner held. Another owner, in a kernel that goes on, also loses what it holds.
  if (what == Unfinished::owner) end_holds(side, handle, slot, kHoldsTx | kHoldsRx);
  if (what == Unfinished::owner || what == Unfinished::call) count_out(side, handle, slot);
  if (what == Unfinished::close) request_close(side, handle, slot, table::generation_of(handle));
}
#endif

/// Counts the calling group in. Returns 0, or a negated errno. If `socket` is a negated errno, returns that.
template <class Group>
GPUSOCK_FN int begin_owning(const Group& group, const Side& side, Socket socket) {
  GPUSOCK_GROUP_CALL_OF_ONE(group, begin_owning(this_thread(), side, socket));
  return static_cast<int>(by_leader(group, [&]() -> std::int64_t {
    if (socket < 0) return socket;
    return side.owned == socket ? -EINVAL : enter_owner(side, socket);
  }));
}

/// Counts the owner out. `side`: the owner's Side.
template <class Group>
GPUSOCK_FN void end_owning(const Group& group, const Side& side) {
  GPUSOCK_GROUP_CALL(group);
  group.sync();  // no thread of the group is still in an earlier call
  if (group.thread_rank() == 0) leave_owner(side);
}

}  // namespace gpusock::detail
