// Sending and receiving in ring memory, without a copy: reserve, commit, abort; peek, release.
#pragma once

namespace gpusock {
namespace detail {

/// Bits of CallerSlot::tx_held and rx_held below the handle: how many bytes are held, and whether the socket's owner
/// holds them. The owner stays counted in when the hold ends.
inline constexpr std::uint64_t kHeldByOwner = std::uint64_t{1} << 31, kHeldBytes = kHeldByOwner - 1;
static_assert(kHeldBytes >= kRingBytesMax);

/// Notes that `size` bytes are held for this handle. The holder stays counted in until end_hold(). `which`: kHoldsTx or
/// kHoldsRx.
GPUSOCK_FN inline void begin_hold(const Side& side, std::uint64_t& held, Socket socket, std::int64_t size,
                                  unsigned which) {
  const std::uint64_t holder = side.owned == socket ? kHeldByOwner : 0;
  if (holder != 0) *side.owner_holds |= which;
  if (holder == 0) note(side, Unfinished::nothing, socket);  // the hold outlasts the call, and any thread may end it
  DeviceRef(held).store(static_cast<std::uint64_t>(socket) << 32 | holder | static_cast<std::uint64_t>(size),
                        ringbuf::kRelaxed);  // relaxed: the holder's own word
}

/// Ends the hold of this handle if it has at least `bytes` bytes. Returns 0, or a negated errno. If several threads end
/// it, one of them gets 0 and counts the holder out, unless the holder is the `owner`. `which`: kHoldsTx or kHoldsRx.
GPUSOCK_FN inline int end_hold(const Side& side, std::uint64_t& held, Socket socket, std::uint64_t bytes,
                               unsigned which, bool& owner) {
  DeviceRef word(held);
  std::uint64_t before = word.load(ringbuf::kRelaxed);  // relaxed: see begin_hold()
  do {
    if (before >> 32 != static_cast<std::uint64_t>(socket)) return find(side, socket) == nullptr ? -EBADF : -EINVAL;
    if (bytes > (before & kHeldBytes)) return -EINVAL;
  } while (!word.compare_exchange_weak(before, 0, ringbuf::kRelease, ringbuf::kRelaxed));  // T13, pairs with T12
  owner = (before & kHeldByOwner) != 0;
  if (owner && side.owned == socket) *side.owner_holds &= ~which;
  return 0;
}

/// The first contiguous part of a range.
GPUSOCK_FN inline Span first_run(const ringbuf::RingMemory& memory, const CopyRange& range) {
  const ringbuf::RingSpan run = memory.spans(range.position, static_cast<std::uint64_t>(range.bytes)).first;
  return {run.data, static_cast<std::int64_t>(run.bytes)};
}

/// The value of tx_held while a reservation is being made. Its upper half is 0, which is no handle: see slot_at().
inline constexpr std::uint64_t kHoldPending = 1;

/// Reserves a record in a socket that the caller has entered.
GPUSOCK_FN inline Span reserve_record(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t bytes,
                                      Deadline deadline) {
  DeviceRef held(slot.tx_held);
  std::uint64_t none = 0;
  if (!held.compare_exchange_strong(none, kHoldPending, ringbuf::kAcquire, ringbuf::kRelaxed))
    return {nullptr, -EBUSY};  // T12
  const Claim claim = claim_record(side, socket, slot, bytes, deadline);
  if (claim.error != 0) {
    held.store(0, ringbuf::kRelease);  // T13, pairs with T12
    return {nullptr, claim.error};
  }
  slot.records.reserved = claim.number;
  slot.records.reserved_at = claim.position;
  begin_hold(side, slot.tx_held, socket, static_cast<std::int64_t>(bytes), kHoldsTx);
  return {slot.tx.memory().spans(claim.position + ringbuf::kRecordHeaderBytes, bytes).first.data,
          static_cast<std::int64_t>(bytes)};
}

/// Ends the reservation if it has at least `bytes` bytes. Returns 0, or a negated errno. For a record, also
/// sets `claim`.
GPUSOCK_FN inline int end_reservation(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t bytes,
                                      Claim& claim, bool& owner) {
  const std::uint64_t held = DeviceRef(slot.tx_held).load(ringbuf::kRelaxed);  // relaxed: see begin_hold()
  if (table::carries_records(socket) && held >> 32 == static_cast<std::uint64_t>(socket)) {
    claim = {0, slot.records.reserved, slot.records.reserved_at, ringbuf::record_span(held & kHeldBytes)};
  }
  return end_hold(side, slot.tx_held, socket, bytes, kHoldsTx, owner);
}

/// Sends the first `bytes` bytes (0: nothing) of a reservation that was ended, and counts its holder out, unless that
/// is the owner.
GPUSOCK_FN inline void send_reserved(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t bytes,
                                     const Claim& claim, bool owner) {
  if (table::carries_records(socket)) {  // even if nothing is sent: later records wait for it
    const bool sends = bytes != 0;
    complete(side, socket, slot, claim, sends ? static_cast<std::uint32_t>(bytes) : ringbuf::RecordHeader::kFiller, 0);
  } else if (bytes != 0) {
    slot.tx.commit(bytes);
    if (slot.link_needs_proxy != 0) ring_doorbell(side, socket);
  } else {
    slot.tx.forget_room();  // it was too little: the next call looks again
  }
  if (!owner) count_out(side, socket, slot);
}

GPUSOCK_FN_APART inline Span reserve_one(const Side& side, Socket socket, std::uint64_t bytes_max, Deadline deadline) {
  if (bytes_max == 0) return {nullptr, -EINVAL};
  CallerSlot* slot = enter(side, socket);
  if (slot == nullptr) return {nullptr, -EBADF};
  if (table::carries_records(socket)) {
    const Span record = reserve_record(side, socket, *slot, bytes_max, deadline);
    if (record.size < 0) leave(side, socket, *slot);
    return record;
  }
  const CopyRange range = wait_writable(side, socket, *slot, 1, bytes_max, deadline);
  if (range.bytes < 0) {
    leave(side, socket, *slot);
    return {nullptr, range.bytes};
  }
  const Span span = first_run(slot->tx.memory(), range);
  begin_hold(side, slot->tx_held, socket, span.size, kHoldsTx);  // the call stays counted in
  return span;
}

/// Reserves all of `bytes` in a stream. Returns the first part; `rest` is the part after the ring's end.
GPUSOCK_FN_APART inline Span reserve_all(const Side& side, Socket socket, std::uint64_t bytes, Span& rest,
                                         Deadline deadline) {
  rest = {};
  if (bytes == 0) return {nullptr, -EINVAL};
  CallerSlot* slot = enter(side, socket);
  if (slot == nullptr) return {nullptr, -EBADF};
  const bool fits = bytes <= slot->tx.memory().capacity;
  const CopyRange range = fits ? wait_writable(side, socket, *slot, bytes, bytes, deadline) : CopyRange{-EMSGSIZE};
  if (range.bytes < 0) {
    leave(side, socket, *slot);
    return {nullptr, range.bytes};
  }
  const ringbuf::RingSpans room = slot->tx.memory().spans(range.position, bytes);
  if (room.second.bytes != 0) rest = {room.second.data, static_cast<std::int64_t>(room.second.bytes)};
  begin_hold(side, slot->tx_held, socket, range.bytes, kHoldsTx);  // the call stays counted in
  return {room.first.data, static_cast<std::int64_t>(room.first.bytes)};
}

GPUSOCK_FN_APART inline int commit_one(const Side& side, Socket socket, std::uint64_t bytes) {
  CallerSlot* slot = slot_at(side, socket);
  if (slot == nullptr) return -EBADF;
  Claim claim;
  bool owner = false;
  if (const int error = end_reservation(side, socket, *slot, bytes, claim, owner); error != 0) return error;
  const bool flows = known_to_flow(side, *slot, table::kCallerShutWrite);
  const int error = closed(*slot, socket) ? -EBADF : flows ? 0 : check_committable(side, socket, *slot);
  send_reserved(side, socket, *slot, error == 0 ? bytes : 0, claim, owner);
  return error;
}

GPUSOCK_FN_APART inline int abort_one(const Side& side, Socket socket) {
  CallerSlot* slot = slot_at(side, socket);
  if (slot == nullptr) return -EBADF;
  Claim claim;
  bool owner = false;
  if (const int error = end_reservation(side, socket, *slot, 0, claim, owner); error != 0) return error;
  send_reserved(side, socket, *slot, 0, claim, owner);
  return 0;
}

/// Peeks at a record of a socket that the caller has entered.
GPUSOCK_FN inline Span peek_record(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t bytes_max,
                                   Deadline deadline) {
  const ArrivedRecord record = wait_record(side, socket, slot, deadline);
  if (record.bytes <= 0) return {nullptr, record.bytes};
  const auto bytes = static_cast<std::uint64_t>(record.bytes);
  if (bytes > bytes_max) return {nullptr, -EMSGSIZE};
  slot.records.peeked_span = record.span;
  begin_hold(side, slot.rx_held, socket, record.bytes, kHoldsRx);
  return {slot.rx.memory().spans(record.position, bytes).first.data, record.bytes};
}

GPUSOCK_FN_APART inline Span peek_one(const Side& side, Socket socket, std::uint64_t bytes_max, Deadline deadline) {
  if (bytes_max == 0) return {nullptr, -EINVAL};
  CallerSlot* slot = enter(side, socket);
  if (slot == nullptr) return {nullptr, -EBADF};
  if (table::carries_records(socket)) {
    const Span record = peek_record(side, socket, *slot, bytes_max, deadline);
    if (record.size <= 0) leave(side, socket, *slot);
    return record;
  }
  const CopyRange range = wait_readable(side, socket, *slot, 1, bytes_max, deadline);
  if (range.bytes <= 0) {
    leave(side, socket, *slot);
    return {nullptr, range.bytes};
  }
  const Span span = first_run(slot->rx.memory(), range);
  begin_hold(side, slot->rx_held, socket, span.size, kHoldsRx);  // the call stays counted in
  return span;
}

GPUSOCK_FN_APART inline int release_one(const Side& side, Socket socket, std::uint64_t bytes) {
  CallerSlot* slot = slot_at(side, socket);
  if (slot == nullptr) return -EBADF;
  bool owner = false;
  if (const int error = end_hold(side, slot->rx_held, socket, bytes, kHoldsRx, owner); error != 0) return error;
  const int error = closed(*slot, socket) ? -EBADF : 0;
  if (error == 0 && bytes != 0) {
    slot->rx.release(table::carries_records(socket) ? slot->records.peeked_span : bytes);
    if (slot->link_needs_proxy != 0) ring_for_credit(side);
  } else if (error == 0 && !table::carries_records(socket)) {
    slot->rx.forget_arrived();  // it was too little: the next call looks again
  }
  if (!owner) count_out(side, socket, *slot);
  return error;
}

}  // namespace detail

template <class Group>
GPUSOCK_FN Span Net::reserve(const Group& group, Socket socket, std::size_t bytes_max, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, reserve(this_thread(), socket, bytes_max, deadline));
  return detail::value_by_leader(group,
                                 [&] { return detail::reserve_one(side(), socket, bytes_max, deadline.here()); });
}

template <class Group>
GPUSOCK_FN Span Net::reserve(const Group& group, Socket socket, std::size_t bytes, Span& rest,
                             Deadline deadline) const {
  if (table::carries_records(socket)) {
    rest = {};
    return reserve(group, socket, bytes, deadline);
  }
  GPUSOCK_GROUP_CALL_OF_ONE(group, reserve(this_thread(), socket, bytes, rest, deadline), rest);
  Span second;
  const Span first = detail::value_by_leader(
      group, [&] { return detail::reserve_all(side(), socket, bytes, second, deadline.here()); });
  rest = detail::value_by_leader(group, [&] { return second; });
  return first;
}

template <class Group>
GPUSOCK_FN int Net::commit(const Group& group, Socket socket, std::size_t bytes) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, commit(this_thread(), socket, bytes));
  group.sync();  // all threads have written their part
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::commit_one(side(), socket, bytes); }));
}

template <class Group>
GPUSOCK_FN int Net::abort(const Group& group, Socket socket) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, abort(this_thread(), socket));
  group.sync();  // no thread writes any more
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::abort_one(side(), socket); }));
}

template <class Group>
GPUSOCK_FN Span Net::peek(const Group& group, Socket socket, std::size_t bytes_max, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, peek(this_thread(), socket, bytes_max, deadline));
  return detail::value_by_leader(group, [&] { return detail::peek_one(side(), socket, bytes_max, deadline.here()); });
}

template <class Group>
GPUSOCK_FN int Net::release(const Group& group, Socket socket, std::size_t bytes) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, release(this_thread(), socket, bytes));
  group.sync();  // all threads have read their part
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::release_one(side(), socket, bytes); }));
}

}  // namespace gpusock
