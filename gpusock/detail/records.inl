// Records (SOCK_SEQPACKET) in the byte rings: see ringbuf/record.hpp for how they lie there.
#pragma once

namespace gpusock {
namespace detail {

GPUSOCK_FN inline void lock_records(const Side& side, table::RecordSender& records) {
  DeviceRef lock(records.lock);
  while (lock.exchange(1, ringbuf::kAcquire) != 0) pause(side);  // T10, pairs with T11
}

GPUSOCK_FN inline void unlock_records(table::RecordSender& records) {
  DeviceRef(records.lock).store(0, ringbuf::kRelease);  // T11, pairs with T10
}

/// Space in the tx ring that belongs to one sender until it completes the record; or a negated errno.
struct Claim {
  int error = 0;
  std::uint32_t number = 0;    ///< as RecordSender counts claims
  std::uint64_t position = 0;  ///< the position of the header
  std::uint64_t span = 0;
};

/// Whether a claim would succeed, and the bytes at the ring's end that it would leave unused.
struct Room {
  int error = 0;  ///< 0, -EAGAIN, or -EPIPE once this side has ended sending
  std::uint64_t filler = 0;
};

/// The room for a record that takes `span` bytes, as far as it is known. The caller holds the lock.
GPUSOCK_FN_APART inline Room find_room(CallerSlot& slot, std::uint64_t span) {
  const table::RecordSender& records = slot.records;
  if (records.ended != 0) return {-EPIPE};
  const ringbuf::RingMemory& memory = slot.tx.memory();
  const std::uint64_t to_end = memory.capacity - memory.index_of(records.claimed);
  const std::uint64_t filler = to_end < span ? to_end : 0;
  const std::uint64_t ahead = records.claimed - slot.tx.position();  // claimed and not committed
  const bool fits = slot.tx.known_writable() >= ahead + filler + span &&
                    records.next - records.first < table::RecordSender::kClaimsMax;
  return {fits ? 0 : -EAGAIN, filler};
}

/// Reads the consumer's word, then takes the lock, so that the lock is not held while the read crosses the bus. True if
/// the word is valid. The caller unlocks.
GPUSOCK_FN inline bool lock_with_room(const Side& side, CallerSlot& slot) {
  const std::uint64_t consumed = slot.tx.load_consumed();
  lock_records(side, slot.records);
  // Another sender may have noted a later value meanwhile. Only then is the word read under the lock.
  return slot.tx.note_consumed(consumed) || slot.tx.note_consumed(slot.tx.load_consumed());
}

/// Claims space for a record, or returns -EAGAIN if there is none. `looks`: true reads the consumer's word first; false
/// uses the value that is known.
GPUSOCK_FN_APART inline Claim try_claim(const Side& side, CallerSlot& slot, std::uint64_t span, bool looks) {
  constexpr std::uint32_t kClaims = table::RecordSender::kClaimsMax;
  table::RecordSender& records = slot.records;
  bool valid = true;
  if (looks) {
    valid = lock_with_room(side, slot);
  } else {
    lock_records(side, records);
  }
  const Room room = valid ? find_room(slot, span) : Room{-EPROTO};
  Claim claim{room.error};
  if (room.error == 0) {
    const ringbuf::RecordHeader header{ringbuf::RecordHeader::kFiller, static_cast<std::uint32_t>(room.filler)};
    if (room.filler != 0) *ringbuf::header_at(slot.tx.memory(), records.claimed) = header.pack();
    claim = {0, records.next++, records.claimed + room.filler, span};
    records.claimed += room.filler + span;
    records.ends[claim.number % kClaims] = records.claimed;
  }
  unlock_records(records);
  return claim;
}

/// For poll: true if sending a record of an eighth of the ring would not wait.
GPUSOCK_FN_APART inline bool record_fits(const Side& side, CallerSlot& slot) {
  const std::uint64_t span = ringbuf::record_span(slot.tx.memory().capacity / 8);
  if (slot.tx.writable_at_a_glance() < span) return false;  // takes the lock only if it may fit
  const bool valid = lock_with_room(side, slot);
  const Room room = valid ? find_room(slot, span) : Room{-EPROTO};
  unlock_records(slot.records);
  return room.error != -EAGAIN;
}

/// Waits for space for a record of `bytes` bytes.
GPUSOCK_FN_APART inline Claim claim_record(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t bytes,
                                           Deadline deadline) {
  if (bytes > ringbuf::record_bytes_max(slot.tx.memory().capacity)) return {-EMSGSIZE};
  if (known_to_flow(side, slot, table::kCallerShutWrite)) {
    const Claim claim = try_claim(side, slot, ringbuf::record_span(bytes), false);
    if (claim.error != -EAGAIN) return claim;
  }
  Wait wait(side, deadline, slot.link_needs_proxy != 0, slot.send_timeout_ns);
  for (std::uint64_t turn = 0;; ++turn) {
    const Looks looks = looks_in_turn(side, slot, turn);
    if (looks.status) {
      if (const int error = check_committable(side, socket, slot); error != 0) return {error};
    }
    if (looks.ring || turn == 0) {
      const Claim claim = try_claim(side, slot, ringbuf::record_span(bytes), true);
      if (claim.error != -EAGAIN) return claim;
    }
    if (turn == 0 && slot.link_needs_proxy != 0) ring_doorbell(side, socket);  // for bytes that kMore held back
    if (const int stop = wait.turn(); stop != 0) return {stop};
    if (closed(slot, socket)) return {-EBADF};
  }
}

/// Undoes claims from the back, as far as they were given up. Their space is free at once. The caller holds the lock.
GPUSOCK_FN inline void take_back_claims(CallerSlot& slot) {
  constexpr std::uint32_t kClaims = table::RecordSender::kClaimsMax;
  table::RecordSender& records = slot.records;
  while (records.next != records.first && (records.given_up >> (records.next - 1) % kClaims & 1) != 0) {
    --records.next;
    records.done &= ~(1u << records.next % kClaims);
    records.given_up &= ~(1u << records.next % kClaims);
    records.claimed = records.next == records.first ? slot.tx.position() : records.ends[(records.next - 1) % kClaims];
  }
}

/// Commits the completed claims at the front, up to the last record among them. Returns the number of bytes. A claim
/// that was given up is committed only together with a record after it, because a receiver that waits for a record with
/// poll() gives no space back. The caller holds the lock.
GPUSOCK_FN inline std::uint64_t commit_completed(CallerSlot& slot) {
  constexpr std::uint32_t kClaims = table::RecordSender::kClaimsMax;
  table::RecordSender& records = slot.records;
  std::uint32_t end_claim = records.first;  // the claim after the last record that can be committed
  for (std::uint32_t i = records.first; i != records.next && (records.done >> i % kClaims & 1) != 0; ++i) {
    if ((records.given_up >> i % kClaims & 1) == 0) end_claim = i + 1;
  }
  std::uint64_t end = slot.tx.position();
  for (; records.first != end_claim; ++records.first) {
    end = records.ends[records.first % kClaims];
    records.done &= ~(1u << records.first % kClaims);
    records.given_up &= ~(1u << records.first % kClaims);
  }
  const std::uint64_t committed = end - slot.tx.position();
  if (committed != 0) slot.tx.commit(committed);
  return committed;
}

/// From now on no sender can claim space. True if no claim is open; otherwise the sender that completes the last claim
/// tells the proxy of the end.
GPUSOCK_FN_APART inline bool end_records(const Side& side, table::RecordSender& records) {
  lock_records(side, records);
  records.ended = 1;
  const bool none_open = records.first == records.next;
  unlock_records(records);
  return none_open;
}

/// Completes a claim as a record of `bytes` bytes, which have been written, or gives it up (kFiller). Commits this
/// claim and those after it that are complete. If a claim before it is not complete, the sender of that claim will
/// commit them.
GPUSOCK_FN_APART inline void complete(const Side& side, Socket socket, CallerSlot& slot, const Claim& claim,
                                      std::uint32_t bytes, int flags) {
  constexpr std::uint32_t kClaims = table::RecordSender::kClaimsMax;
  table::RecordSender& records = slot.records;
  *ringbuf::header_at(slot.tx.memory(),
                      claim.position) = ringbuf::RecordHeader{bytes, static_cast<std::uint32_t>(claim.span)}.pack();
  lock_records(side, records);
  records.done |= 1u << claim.number % kClaims;
  if (bytes == ringbuf::RecordHeader::kFiller) records.given_up |= 1u << claim.number % kClaims;
  take_back_claims(slot);
  const std::uint64_t committed = commit_completed(slot);
  const bool ends = records.ended != 0 && records.first == records.next;
  unlock_records(records);
  if (ends) {
    write_request(side, socket, slot, table::generation_of(socket), table::kRequestShutdownWrite);
  } else if (committed != 0 && slot.link_needs_proxy != 0 && (flags & kMore) == 0) {
    ring_doorbell(side, socket);
  }
}

template <class Group>
GPUSOCK_FN std::int64_t send_record(const Group& group, const Side& side, Socket socket, CallerSlot& slot,
                                    const void* data, std::uint64_t bytes, int flags, Deadline deadline) {
  const bool leads = group.thread_rank() == 0;
  const bool entered = leads && enter(side, socket) != nullptr;
  const Deadline until = with_flags(deadline, flags);
  Claim claim{-EBADF};
  if (entered)
    claim = bytes == 0 ? Claim{check_committable(side, socket, slot)} : claim_record(side, socket, slot, bytes, until);
  const CopyRange range = broadcast(group, CopyRange{claim.error, claim.position + ringbuf::kRecordHeaderBytes});
  if (range.bytes == 0 && bytes != 0)
    copy(group, slot.tx.memory().spans(range.position, bytes).first.data, data, bytes);
  group.sync();
  if (entered) {
    if (claim.error == 0 && bytes != 0) complete(side, socket, slot, claim, static_cast<std::uint32_t>(bytes), flags);
    leave(side, socket, slot);
  }
  return range.bytes != 0 ? range.bytes : static_cast<std::int64_t>(bytes);
}

/// A record that has arrived: its length, the position of its bytes, and the space that it takes in the ring. At the
/// end of the stream, `bytes` and `span` are 0. After an error, `bytes` is a negated errno.
struct ArrivedRecord {
  std::int64_t bytes = 0;
  std::uint64_t position = 0;
  std::uint64_t span = 0;
};

/// Loads the header at this position once, because the peer may overwrite it. At least a header has arrived.
GPUSOCK_FN inline ringbuf::RecordHeader load_header(const ringbuf::RingMemory& memory, std::uint64_t position) {
  SystemRef word(*ringbuf::header_at(memory, position));
  return ringbuf::RecordHeader::unpack(word.load(ringbuf::kRelaxed));  // relaxed: C1 ordered it
}

/// The next record, if all of it is among the `arrived` bytes. If not, `bytes` is -EAGAIN, or -EPROTO if the header is
/// invalid. Consumes fillers and subtracts them from `arrived`.
GPUSOCK_FN_APART inline ArrivedRecord next_record(const Side& side, CallerSlot& slot, std::uint64_t& arrived) {
  const ringbuf::RingMemory& memory = slot.rx.memory();
  while (arrived >= ringbuf::kRecordHeaderBytes) {
    const std::uint64_t position = slot.rx.position();
    const ringbuf::RecordHeader header = load_header(memory, position);
    if (!header.fits(memory.capacity - memory.index_of(position))) return {-EPROTO};
    if (header.span > arrived) break;
    if (!header.is_filler()) return {header.bytes, position + ringbuf::kRecordHeaderBytes, header.span};
    slot.rx.release(header.span);
    if (slot.link_needs_proxy != 0) ring_for_credit(side);
    arrived -= header.span;
  }
  return {-EAGAIN};
}

/// As next_record(), but returns -EAGAIN if `arrived` is kRingCorrupt. The caller then looks again, and reports that
/// error.
GPUSOCK_FN inline ArrivedRecord next_of(const Side& side, CallerSlot& slot, std::uint64_t arrived) {
  return arrived == ringbuf::kRingCorrupt ? ArrivedRecord{-EAGAIN} : next_record(side, slot, arrived);
}

/// Waits until a record has arrived, or the stream of records has ended.
GPUSOCK_FN_APART inline ArrivedRecord wait_record(const Side& side, Socket socket, CallerSlot& slot,
                                                  Deadline deadline) {
  const bool at_once = may_take_at_once(side, slot);
  if (at_once) {
    ArrivedRecord record = next_of(side, slot, slot.rx.known_readable());
    if (record.bytes == -EAGAIN) {
      before_look(side, socket, slot, deadline);
      record = next_of(side, slot, slot.rx.readable());
      if (record.bytes != -EAGAIN) note_receiving_wait(side, socket, slot, record.span);
    }
    if (record.bytes != -EAGAIN) {
      slot.rx_turns = 0;
      return record;
    }
  }
  Wait wait(side, deadline, slot.link_needs_proxy != 0, slot.receive_timeout_ns);
  Status status;
  for (bool first = true;; first = false) {
    Looks looks = looks_in_turn(side, slot, slot.rx_turns++);
    if (first) looks = {looks.status || !at_once, !at_once};
    if (looks.status) {
      if (const int error = look_before_ring(side, socket, slot, status); error != 0) return {error};
    }
    if (looks.ring || !noted_to_flow(slot, table::kCallerShutRead)) {
      const auto [there, ended] = look_at_rx(side, socket, slot, status, ~std::uint64_t{0});
      if (there == ringbuf::kRingCorrupt) return {-EPROTO};
      std::uint64_t arrived = there;
      const ArrivedRecord record = next_record(side, slot, arrived);
      if (record.bytes != -EAGAIN) {
        note_receiving_wait(side, socket, slot, record.span);
        slot.rx_turns = 0;
        return record;
      }
      if (status.phase == Phase::failed && !ended) return {-static_cast<std::int64_t>(status.error)};
      // Bytes that are left after the peer's end are an incomplete record.
      if (ended) return {arrived != 0 && (status.flags & table::kStatusEnded) != 0 ? -EPROTO : 0};
    }
    if (const int stop = wait.turn(); stop != 0) return {stop};
    if (closed(slot, socket)) return {-EBADF};
  }
}

template <class Group>
GPUSOCK_FN std::int64_t recv_record(const Group& group, const Side& side, Socket socket, CallerSlot& slot, void* data,
                                    std::uint64_t bytes, int flags, Deadline deadline) {
  const bool leads = group.thread_rank() == 0;
  const bool entered = leads && enter(side, socket) != nullptr;
  const Deadline until = with_flags(deadline, flags);
  ArrivedRecord record{-EBADF};
  if (entered) record = wait_record(side, socket, slot, until);
  const CopyRange range = broadcast(group, CopyRange{record.bytes, record.position});
  if (range.bytes > 0) {
    const auto length = static_cast<std::uint64_t>(range.bytes);
    const std::uint64_t part = bytes < length ? bytes : length;
    copy(group, data, slot.rx.memory().spans(range.position, part).first.data, part);
  }
  group.sync();
  if (entered) {
    if (record.span != 0 && (flags & kPeek) == 0) {
      slot.rx.release(record.span);
      if (slot.link_needs_proxy != 0) ring_for_credit(side);
    }
    leave(side, socket, slot);
  }
  return range.bytes;
}

/// True if a record has arrived, or something for which recv would return an error. For poll. Changes nothing.
GPUSOCK_FN_APART inline bool record_waits(const ringbuf::ByteConsumer<>& rx) {
  const ringbuf::RingMemory& memory = rx.memory();
  std::uint64_t position = rx.position_at_a_glance();
  const std::uint64_t end = rx.load_committed();  // C1
  if (end - position > memory.capacity) return true;
  while (end - position >= ringbuf::kRecordHeaderBytes) {
    const ringbuf::RecordHeader header = load_header(memory, position);
    if (!header.fits(memory.capacity - memory.index_of(position))) return true;
    if (header.span > end - position) return false;
    if (!header.is_filler()) return true;
    position += header.span;
  }
  return false;
}

}  // namespace detail
}  // namespace gpusock
