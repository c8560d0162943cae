// Counting a group into a socket for longer than a call (OwnedSocket).
#pragma once

namespace gpusock::detail {

/// Counts the calling group in: 0, or why not. `socket` may be a negated errno, which is the result then.
template <class Group>
GPUSOCK_FN int begin_owning(const Group& group, const Side& side, Socket socket) {
  GPUSOCK_GROUP_CALL(group);
  return static_cast<int>(by_leader(group, [&]() -> std::int64_t {
    if (socket < 0) return socket;
    if (side.owned == socket) return -EINVAL;
    return enter(side, socket) != nullptr ? 0 : -EBADF;
  }));
}

/// Gives up what the owner still holds of the rings, which would otherwise be held in the slot's next socket.
GPUSOCK_FN inline void end_holds(const Side& side, Socket socket, CallerSlot& slot) {
  // Relaxed: the owner's own words; those of other holders are only compared.
  const auto mine = [socket](std::uint64_t& held) {
    const std::uint64_t word = DeviceRef(held).load(ringbuf::kRelaxed);
    return word >> 32 == static_cast<std::uint64_t>(socket) && (word & kHeldByOwner) != 0;
  };
  if (mine(slot.tx_held)) abort_one(side, socket);
  if (mine(slot.rx_held)) release_one(side, socket, 0);
}

/// Counts the owner out. `side`: the owner's.
template <class Group>
GPUSOCK_FN void end_owning(const Group& group, const Side& side, Socket socket) {
  GPUSOCK_GROUP_CALL(group);
  group.sync();  // no thread of the group is still in an earlier call
  if (group.thread_rank() != 0) return;
  CallerSlot& slot = side.slots[table::slot_of(socket)];
  end_holds(side, socket, slot);
  count_out(side, socket, slot);
}

}  // namespace gpusock::detail
