#pragma once
/// @file One thread's part of the socket calls: opening, waiting, publishing. Net wraps these for groups.

#include "gpusock/detail/side.cuh"
#include "ringbuf/record.hpp"
#include "ringbuf/streaming_copy.hpp"

namespace gpusock::detail {

using table::CallerSlot;
using table::Phase;
using table::Status;

/// The deadline of a call on this caller side with these flags.
GPUSOCK_FN inline Deadline with_flags(Deadline deadline, int flags) {
  return (flags & kDontWait) != 0 ? Deadline::now() : deadline.here();
}

/// The slot of this handle, or nullptr if no call has returned the handle. The slot may belong to a closed or another
/// connection by now. Handles are given out with odd generations, so handle 0, which a zeroed variable holds, is
/// invalid: it must not reach the slot's words, where 0 means that nothing is held.
GPUSOCK_FN inline CallerSlot* slot_at(const Side& side, Socket socket) {
  const std::uint32_t slot = table::slot_of(socket);
  const bool given_out = socket >= 0 && (table::generation_of(socket) & 1) != 0 && slot < side.table.slots;
  return given_out ? &side.slots[slot] : nullptr;
}

/// True if a thread has closed the socket.
GPUSOCK_FN inline bool closed(CallerSlot& slot, Socket socket) {
  // Relaxed: as after enter(), what a caller does next does not depend on this load.
  const std::uint64_t word = DeviceRef(slot.generation_and_users).load(ringbuf::kRelaxed);
  return table::generation_in(word) != table::generation_of(socket);
}

/// The open socket of this handle on this caller side, or nullptr (-EBADF).
GPUSOCK_FN inline CallerSlot* find(const Side& side, Socket socket) {
  CallerSlot* slot = slot_at(side, socket);
  return slot != nullptr && !closed(*slot, socket) ? slot : nullptr;
}

/// Adds request bits to those of this generation and publishes them. False if the slot has another generation by now.
/// Several callers may write requests of one socket at the same time, and after the last request, the close, the slot
/// may belong to another socket at once. So each caller publishes under the slot's lock, and none after the close. The
/// lock is held for three accesses. Requests that were written already are not written again: a call that came too
/// late, and is counted in and out after the close, finds that the close was requested.
GPUSOCK_FN_APART inline bool write_request(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t generation,
                                           std::uint64_t bits) {
  lock(side, slot.request_lock);
  const std::uint64_t word = DeviceRef(slot.generation_and_users).load(ringbuf::kRelaxed);  // relaxed: T7 ordered it
  const bool valid = table::generation_in(word) == generation;
  if (valid && (slot.requests & bits) != bits) {
    slot.requests |= bits;
    SystemRef published(side.table.requests[table::slot_of(socket)]);
    published.store(slot.requests, ringbuf::kRelease);  // T1, pairs with T2
  }
  unlock(slot.request_lock);
  if (valid) ring_doorbell(side, socket);
  return valid;
}

/// Publishes what callers have chosen for a socket: its options, and the set that watches it. The caller holds the lock
/// of the socket's requests.
GPUSOCK_FN inline void publish_choices(const Side& side, Socket socket, CallerSlot& slot) {
  SystemRef options(side.table.options[table::slot_of(socket)]), watch(side.sets->watches[table::slot_of(socket)]),
      published(side.table.requests[table::slot_of(socket)]);
  const table::WatchWord word{slot.watch.set, static_cast<std::uint16_t>(slot.watch.events),
                              static_cast<std::uint16_t>(slot.watch.number)};
  // Relaxed, all: T7 ordered the load, and T1 publishes the stores.
  options.store(DeviceRef(slot.options).load(ringbuf::kRelaxed), ringbuf::kRelaxed);
  watch.store(word.pack(), ringbuf::kRelaxed);
  slot.requests += std::uint64_t{1} << table::kChangeShift;
  published.store(slot.requests, ringbuf::kRelease);  // T1, pairs with T2
}

/// Makes a granted or accepted handle an open socket of this caller side. Takes the slot's lock, because a late call on
/// an old handle may check at this moment whether the close was requested.
GPUSOCK_FN inline CallerSlot& claim(const Side& side, Socket socket) {
  const auto generation = table::generation_of(socket);
  CallerSlot& slot = side.slots[table::slot_of(socket)];
  lock(side, slot.request_lock);
  slot.requests = table::make_request(generation, 0);
  slot.options = table::SocketOptions().pack();
  slot.receive_timeout_ns = slot.send_timeout_ns = side.timeout_ns;
  slot.tx_past_ring = slot.rx_past_ring = 0;
  slot.flags = 0;
  slot.watch = {};
  slot.link_needs_proxy = 0;
  slot.has_records = 0;
  // Added, not stored: a late call on an old handle may count itself in and out of the same word at this moment.
  // Relaxed, both: all users of the handle have it from the thread that it was given to, and late calls hold the lock.
  DeviceRef word(slot.generation_and_users);
  const std::uint32_t before = table::generation_in(word.load(ringbuf::kRelaxed));
  const std::uint64_t step = (generation - before) & table::kGenerationMask;
  word.fetch_add(step << table::kSlotUserBits, ringbuf::kRelaxed);
  unlock(slot.request_lock);
  return slot;
}

/// Reads how a connected socket's rings are reached. Returns the handle that the caller gets, with kRecordBit for
/// records. The status must have been loaded (T4) before.
GPUSOCK_FN inline Socket adopt(const Side& side, Socket socket, CallerSlot& slot) {
  const table::SocketSetup& setup = side.table.setups[table::slot_of(socket)];
  slot.tx = setup.rings.tx.producer();
  slot.rx = setup.rings.rx.consumer();
  slot.link_needs_proxy = setup.link_needs_proxy;
  slot.options = setup.options;
#if !GPUSOCK_ON_GPU
  if (Adaptation* adapted = adaptation(side, socket)) *adapted = {};
#endif
  slot.has_records = setup.records;
  slot.flags = table::kCallerAdopted;
  slot.rx_looked = slot.rx.position();
  slot.rx_turns = 0;
  slot.records.claimed = setup.rings.tx.start;
  slot.records.first = slot.records.next = slot.records.done = slot.records.given_up = slot.records.ended = 0;
  return setup.records != 0 ? socket | table::kRecordBit : socket;
}

/// Wakes the group that waits on a set of either caller side. A caller with an old handle never overwrites the word of
/// a newer generation: under its caller side's lock it sees at least the generation that earlier holders of the lock
/// saw.
GPUSOCK_FN_APART inline int wake_one_set(const Side& side, PollSet set) {
  const std::uint32_t index = table::index_of_set(set), generation = table::generation_of_set(set);
  if (set < 0 || (generation & 1) == 0 || index >= side.sets->count) return -EBADF;
  lock(side, side.sets->callers[index].lock);
  table::PollSetWords& words = side.sets->words_of(index);
  // Relaxed, both: T7 ordered them, or the program that passed the handle on.
  const bool open = SystemRef(words.generation).load(ringbuf::kRelaxed) == generation;
  SystemRef wakes(words.wakes[side.sets->side]);
  const std::uint64_t before = wakes.load(ringbuf::kRelaxed);
  const std::uint64_t first = std::uint64_t{generation} << 32;
  const std::uint64_t next = (before >> 32 == generation ? first | ((before + 1) & 0xffffffffu) : first | 1);
  if (open) wakes.store(next, ringbuf::kRelease);  // W1, pairs with W2
#if !GPUSOCK_ON_GPU
  const bool has_bar = side.sets->bar_words != nullptr && !side.sets->is_own(index);
  if (open && has_bar) ringbuf::bar_write(&side.sets->bar_words[index].wakes[side.sets->side], next);
#endif
  unlock(side.sets->callers[index].lock);
  return open ? 0 : -EBADF;
}

/// Wakes the set that watches a socket with kPollNval, before the proxy is told of the close. Takes the slot's lock,
/// because for a late call on an old handle the slot may belong to another socket.
GPUSOCK_FN_APART inline void tell_watcher(const Side& side, CallerSlot& slot, std::uint32_t closed_generation) {
  lock(side, slot.request_lock);
  const std::uint64_t word = DeviceRef(slot.generation_and_users).load(ringbuf::kRelaxed);  // relaxed: T7 ordered it
  const bool first = table::generation_in(word) == closed_generation && (slot.requests & table::kRequestClose) == 0;
  const PollSet set = first && (slot.watch.events & kPollNval) != 0 ? slot.watch.set : 0;
  unlock(slot.request_lock);
  if (set != 0) wake_one_set(side, set);
}

/// Tells the proxy that the socket is closed. `closed_generation` is even.
GPUSOCK_FN inline void request_close(const Side& side, Socket socket, CallerSlot& slot,
                                     std::uint32_t closed_generation) {
  note(side, Unfinished::close, table::make_handle(table::slot_of(socket), closed_generation));
  tell_watcher(side, slot, closed_generation);
  write_request(side, socket, slot, closed_generation, table::kRequestClose);
  note(side, Unfinished::nothing, socket);
}

/// Requests the close of a closed socket, after the last call was counted out.
GPUSOCK_FN_APART inline void close_after_last(const Side& side, Socket socket, CallerSlot& slot,
                                              std::uint32_t closed_generation) {
  DeviceRef word(slot.generation_and_users);
  (void)word.load(ringbuf::kAcquire);  // T15, pairs with T9, T14; a separate load, because most calls need no acquire
  request_close(side, socket, slot, closed_generation);
}

/// Counts a call, or an owner, out. The last one out of a closed socket requests the close, so that no commit or
/// release comes after the close. The last one may be a late call on an earlier handle of the slot, which was counted
/// in beside the others. So the close is requested for the generation in the count, not for that of the handle.
GPUSOCK_FN_APART inline void count_out(const Side& side, Socket socket, CallerSlot& slot) {
  DeviceRef word(slot.generation_and_users);
  const std::uint64_t before = word.fetch_add(~std::uint64_t{0}, ringbuf::kRelease);  // T9, pairs with T14, T15
  const std::uint32_t generation = table::generation_in(before);  // not loaded later: it may then be the next socket's
  const bool closed = (generation & 1) == 0;
  if (closed && table::users_in(before) == 1) return close_after_last(side, socket, slot, generation);
  note(side, Unfinished::nothing, socket);
}

/// Ends what enter() began.
GPUSOCK_FN inline void leave(const Side& side, Socket socket, CallerSlot& slot) {
  if (side.owned != socket) count_out(side, socket, slot);
}

/// The status of a socket that the caller has entered. If the status does not flow (Status::flows()), that is noted:
/// from then on no call goes on without a look at the status.
GPUSOCK_FN_APART inline Status look_at_status(const Side& side, Socket socket, CallerSlot& slot) {
  const Status status = load_status(side, table::slot_of(socket));
  // Relaxed: a hint by itself. A call that misses it looks when it reads the ring's word next.
  if (!status.flows() && status.phase != Phase::listening)
    DeviceRef(slot.flags).fetch_or(table::kCallerLooks, ringbuf::kRelaxed);
  return status;
}

/// True if callers have noted nothing that stops this direction (`shut`: kCallerShutRead, kCallerShutWrite, or 0).
GPUSOCK_FN inline bool noted_to_flow(CallerSlot& slot, std::uint64_t shut) {
  const std::uint64_t stops = table::kCallerLooks | shut;
  // Relaxed: each bit by itself.
  return (DeviceRef(slot.flags).load(ringbuf::kRelaxed) & (table::kCallerAdopted | stops)) == table::kCallerAdopted;
}

/// True if nothing is known that stops this direction. Then a call may use what the ring's words allow without a look
/// at the status, because that look crosses the bus.
GPUSOCK_FN inline bool known_to_flow(const Side& side, CallerSlot& slot, std::uint64_t shut) {
#if !GPUSOCK_ON_GPU
  if (side.status_turns == 1 && canceled(side)) return false;  // where looks are cheap, the end is seen at once
#else
  (void)side;
#endif
  return noted_to_flow(slot, shut);
}

/// What a waiting call looks at in a turn.
struct Looks {
  bool status;
  bool ring;
};
GPUSOCK_FN inline Looks looks_in_turn(const Side& side, CallerSlot& slot, std::uint64_t turn) {
  const std::uint32_t turns = side.status_turns;
#if !GPUSOCK_ON_GPU
  if (turns == 1) return {true, true};  // never on a GPU, where looks cross the bus
#endif
  const bool status = turn % turns == 0 || !noted_to_flow(slot, 0);
  return {status, turn % turns != 0};
}

/// Counts in a call that uses the socket's rings, until leave(). Returns nullptr (-EBADF) if the socket is not open.
/// The calls of an owner are not counted: the owner is.
GPUSOCK_FN_APART inline CallerSlot* enter(const Side& side, Socket socket) {
  CallerSlot* slot = find(side, socket);
  if (slot == nullptr || side.owned == socket) return slot;
  DeviceRef word(slot->generation_and_users);
  const std::uint64_t before = word.fetch_add(1, ringbuf::kRelaxed);  // relaxed: see T9
  const bool open = table::generation_in(before) == table::generation_of(socket);
  if (open && (slot->has_records != 0) == table::carries_records(socket)) {
    return static_cast<CallerSlot*>(note(side, Unfinished::call, socket, slot));
  }
  count_out(side, socket, *slot);
  return nullptr;
}

GPUSOCK_FN_APART inline int close_one(const Side& side, Socket socket) {
  CallerSlot* slot = find(side, socket);
  if (slot == nullptr) return -EBADF;
  DeviceRef word(slot->generation_and_users);
  const std::uint32_t shut = table::next_generation(table::generation_of(socket));
  std::uint64_t before = word.load(ringbuf::kRelaxed);  // relaxed: only compared; the exchange decides
  do {
    if (table::generation_in(before) != table::generation_of(socket)) return -EBADF;  // another thread closed it first
  } while (!word.compare_exchange_weak(before, std::uint64_t{shut} << table::kSlotUserBits | table::users_in(before),
                                       ringbuf::kAcqRel,
                                       ringbuf::kRelaxed));  // T14, pairs with T9, T15
  if (table::users_in(before) == 0) request_close(side, socket, *slot, shut);
  return 0;
}

/// Skips what earlier listeners left in a new listener's queue: the proxy has taken those handles back
/// (Proxy::take_back).
GPUSOCK_FN inline void skip_leftovers(const Side& side, Socket listener) {
  const table::SocketSetup& setup = side.table.setups[table::slot_of(listener)];
  side.accept_queue(setup.accept_queue).skip_to(setup.accept_start);
}

/// Opens a socket and waits until the proxy has done so.
GPUSOCK_FN_APART inline Socket open(const Side& side, const table::OpenRequest& request, Phase wanted,
                                    Deadline deadline) {
  if (canceled(side)) return -ECANCELED;
  Wait wait(side, deadline, true);
  const Socket socket = side.free_sockets().try_take();
  if (socket < 0) return -EMFILE;
  CallerSlot& slot = claim(side, socket);
  side.table.open_requests[table::slot_of(socket)] = request;
  side.table.open_requests[table::slot_of(socket)].block = running_block(side);
  write_request(side, socket, slot, table::generation_of(socket), table::kRequestOpen);
  for (;;) {
    const Status status = load_status(side, table::slot_of(socket));
    int stop = 0;
    if (status.generation == table::generation_of(socket)) {
      if (status.phase == wanted) break;
      if (status.phase == Phase::failed) stop = -static_cast<int>(status.error);
    }
    if (stop == 0) stop = status.canceled() ? -ECANCELED : wait.turn();
    if (stop != 0) {
      close_one(side, socket);
      return stop;
    }
  }
  if (wanted == Phase::connected) return adopt(side, socket, slot);
  skip_leftovers(side, socket);
  return socket;
}

/// Gives an accepted socket its listener's timeouts.
GPUSOCK_FN inline void inherit_timeouts(CallerSlot& accepted, CallerSlot& listener) {
  // Relaxed, both: a word by itself.
  accepted.receive_timeout_ns = DeviceRef(listener.receive_timeout_ns).load(ringbuf::kRelaxed);
  accepted.send_timeout_ns = DeviceRef(listener.send_timeout_ns).load(ringbuf::kRelaxed);
}

/// Takes a connection from the queue of a listener that the caller has entered.
GPUSOCK_FN_APART inline Socket take_connection(const Side& side, Socket listener, CallerSlot& slot, Deadline deadline) {
  Wait wait(side, deadline, true, slot.receive_timeout_ns);
  for (;;) {
    const Status status = load_status(side, table::slot_of(listener));
    if (status.canceled()) return -ECANCELED;
    if (closed(slot, listener)) return -EBADF;
    if (status.phase != Phase::listening) return -EINVAL;
    const auto queue = side.accept_queue(side.table.setups[table::slot_of(listener)].accept_queue);
    if (const Socket socket = queue.try_take(); socket >= 0) {
      CallerSlot& accepted = claim(side, socket);
      inherit_timeouts(accepted, slot);
      if (closed(slot, listener)) {  // closed meanwhile: no other call will see the connection
        close_one(side, socket);
        return -EBADF;
      }
      load_status(side, table::slot_of(socket));  // T4: the queue's entry was published after the setup
      const Socket handle = adopt(side, socket, accepted);
      side.table.open_requests[table::slot_of(socket)].block = running_block(side);
      write_request(side, socket, accepted, table::generation_of(socket), table::kRequestOpen);
      return handle;
    }
    if (const int stop = wait.turn(); stop != 0) return stop;
  }
}

GPUSOCK_FN_APART inline Socket accept_one(const Side& side, Socket listener, Deadline deadline) {
  CallerSlot* slot = enter(side, listener);  // so that the slot and its queue do not become another listener's
  if (slot == nullptr) return -EBADF;
  const Socket socket = take_connection(side, listener, *slot, deadline);
  leave(side, listener, *slot);
  return socket;
}

/// How many bytes a group may copy now, and from which position; or a negated errno in `bytes`.
struct CopyRange {
  std::int64_t bytes = 0;
  std::uint64_t position = 0;
};

/// Returns 0 if bytes can be committed on this socket, or the negated errno that says why not.
GPUSOCK_FN_APART inline int check_committable(const Side& side, Socket socket, CallerSlot& slot) {
  const Status status = look_at_status(side, socket, slot);
  if (status.canceled()) return -ECANCELED;
  if (status.generation != table::generation_of(socket)) return -EBADF;
  if (status.error != 0) return -static_cast<int>(status.error);
  if (status.phase != Phase::connected) return -ENOTCONN;
  if ((status.flags & table::kStatusPeerReadShutDown) != 0) return -EPIPE;
  if ((DeviceRef(slot.flags).load(ringbuf::kRelaxed) & table::kCallerShutWrite) != 0) return -EPIPE;
  return 0;
}

/// Returns 0 if bytes can be sent on this stream, or the negated errno that says why not.
GPUSOCK_FN inline int check_sendable(const Side& side, Socket socket, CallerSlot& slot) {
  const int error = check_committable(side, socket, slot);
  if (error == -ECANCELED) return error;
  return DeviceRef(slot.tx_held).load(ringbuf::kRelaxed) != 0 ? -EBUSY : error;  // relaxed: the sender's own
}

/// Grants room that is known to be free, without a read over the bus. Grants 0 bytes if there is no such room, or the
/// caller must look at the status. The consumer's word, which tells of more room, is read together with the status. So
/// a call sees what stops the socket within one ring of bytes.
GPUSOCK_FN inline CopyRange grant_known_room(const Side& side, CallerSlot& slot, std::uint64_t least,
                                             std::uint64_t most) {
  const std::uint64_t free_bytes = slot.tx.known_writable();
  const bool granted = least != 0 && free_bytes >= least && known_to_flow(side, slot, table::kCallerShutWrite) &&
                       DeviceRef(slot.tx_held).load(ringbuf::kRelaxed) == 0;  // relaxed: the sender's own
  if (!granted) return {0};
  return {static_cast<std::int64_t>(free_bytes < most ? free_bytes : most), slot.tx.position()};
}

/// Waits until at least `least` bytes of the tx ring are free; grants up to `most`.
GPUSOCK_FN_APART inline CopyRange wait_writable(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t least,
                                                std::uint64_t most, Deadline deadline) {
  if (const CopyRange known = grant_known_room(side, slot, least, most); known.bytes != 0) return known;
  Wait wait(side, deadline, slot.link_needs_proxy != 0, slot.send_timeout_ns);
  for (std::uint64_t turn = 0;; ++turn) {
    const Looks looks = looks_in_turn(side, slot, turn);
    if (looks.status) {
      if (const int error = check_sendable(side, socket, slot); error != 0) return {error};
    }
    if (looks.ring || turn == 0) {
      const std::uint64_t free_bytes = slot.tx.writable(least);
      if (free_bytes == ringbuf::kRingCorrupt) return {-EPROTO};
      if (free_bytes >= least)
        return {static_cast<std::int64_t>(free_bytes < most ? free_bytes : most), slot.tx.position()};
    }
    if (turn == 0 && slot.link_needs_proxy != 0) ring_doorbell(side, socket);  // for bytes that kMore held back
    if (const int stop = wait.turn(); stop != 0) return {stop};
    if (closed(slot, socket)) return {-EBADF};
  }
}

/// How much can be read, and whether that is the rest of a stream that ended in order.
struct Readable {
  std::uint64_t bytes;
  bool ended;
};

GPUSOCK_FN_APART inline Readable look_at_rx(const Side& side, Socket socket, CallerSlot& slot, const Status& status,
                                            std::uint64_t least) {
  std::uint64_t arrived = slot.rx.readable(least);
  const bool ended = (DeviceRef(slot.flags).load(ringbuf::kRelaxed) & table::kCallerShutRead) != 0;
  if (arrived == ringbuf::kRingCorrupt || (status.flags & table::kStatusEnded) == 0) return {arrived, ended};
  const auto final_position =
      SystemRef(side.table.proxy_words[table::slot_of(socket)].rx_final).load(ringbuf::kRelaxed);
  const std::uint64_t left = final_position - slot.rx.position();  // relaxed: T4 ordered it
  const bool passed = static_cast<std::int64_t>(left) < 0;         // bytes read before the end was known: see below
  if (!passed && left > slot.rx.memory().capacity)
    return {ringbuf::kRingCorrupt, true};  // the peer has written an invalid word
  // A send that overlaps its own side's shutdown may commit after the end. Such bytes are not part of the stream.
  if (passed || arrived > left) arrived = passed ? 0 : left;
  return {arrived, ended || passed || arrived == left};
}

/// True if the receiver may take what the ring's word says without a look at the status. It has then taken less than
/// one ring of bytes since its last look, so that even a loop that always finds bytes sees the context's end.
GPUSOCK_FN inline bool may_take_at_once(const Side& side, CallerSlot& slot) {
  return known_to_flow(side, slot, table::kCallerShutRead) &&
         slot.rx.position() - slot.rx_looked < slot.rx.memory().capacity &&
         DeviceRef(slot.rx_held).load(ringbuf::kRelaxed) == 0;  // relaxed: the receiver's own
}

/// A receiver's look at the status. It comes before the look at the ring's word, so that all bytes published before the
/// end or the error are seen. Returns 0, or a negated errno if nothing can be received.
GPUSOCK_FN inline int look_before_ring(const Side& side, Socket socket, CallerSlot& slot, Status& status) {
  status = look_at_status(side, socket, slot);
  slot.rx_looked = slot.rx.position();
  if (status.canceled()) return -ECANCELED;
  if (DeviceRef(slot.rx_held).load(ringbuf::kRelaxed) != 0) return -EBUSY;  // relaxed: the receiver's own
  return status.generation != table::generation_of(socket) ? -EBADF : 0;
}

/// Lets bytes of a stream gather, on a CPU, before a receiver looks at the word of a ring that a peer fills itself.
GPUSOCK_FN inline void before_look(const Side& side, Socket socket, const CallerSlot& slot, Deadline deadline) {
#if !GPUSOCK_ON_GPU
  const Adaptation* const adapted = adaptation(side, socket);
  if (adapted == nullptr || slot.link_needs_proxy != 0 || deadline.is_now()) return;
  adapted->looks.before_look([] { return clock_ns(); });
#else
  (void)side, (void)socket, (void)slot, (void)deadline;
#endif
}

/// Notes that a receiver has got the bytes for which it waited, after slot.rx_turns looks that found too few. It takes
/// at most `most` bytes.
GPUSOCK_FN inline void note_receiving_wait(const Side& side, Socket socket, const CallerSlot& slot,
                                           std::uint64_t most) {
#if !GPUSOCK_ON_GPU
  Adaptation* const adapted = adaptation(side, socket);
  if (adapted == nullptr) return;
  adapted->looks.note_wait({slot.rx_turns, slot.rx.known_readable(), most, slot.tx.position_at_a_glance()});
#else
  (void)side, (void)socket, (void)slot, (void)most;
#endif
}

/// Waits until at least `least` bytes have arrived, or the stream has ended; grants up to `most`, 0 at the end.
GPUSOCK_FN_APART inline CopyRange wait_readable(const Side& side, Socket socket, CallerSlot& slot, std::uint64_t least,
                                                std::uint64_t most, Deadline deadline) {
  const bool known = slot.rx.known_readable() >= least;
  const auto grant = [&](std::uint64_t arrived) {
    if (!known) note_receiving_wait(side, socket, slot, most);
    slot.rx_turns = 0;
    return CopyRange{static_cast<std::int64_t>(arrived < most ? arrived : most), slot.rx.position()};
  };
  const bool at_once = least != 0 && may_take_at_once(side, slot);
  if (at_once) {
    if (!known) before_look(side, socket, slot, deadline);
    const std::uint64_t arrived = slot.rx.readable(least);
    if (arrived >= least && arrived != ringbuf::kRingCorrupt) return grant(arrived);
  }
  Wait wait(side, deadline, slot.link_needs_proxy != 0, slot.receive_timeout_ns);
  Status status;
  for (bool first = true;; first = false) {
    Looks looks = looks_in_turn(side, slot, slot.rx_turns++);
    if (first) looks = {looks.status || !at_once, !at_once};
    if (looks.status) {
      if (const int error = look_before_ring(side, socket, slot, status); error != 0) return {error};
      if (status.phase != Phase::connected && status.phase != Phase::failed) return {-ENOTCONN};
    }
    if (looks.ring || !noted_to_flow(slot, table::kCallerShutRead)) {
      const auto [arrived, ended] = look_at_rx(side, socket, slot, status, least);
      if (arrived == ringbuf::kRingCorrupt) return {-EPROTO};
      if (arrived >= least || (arrived > 0 && ended)) return grant(arrived);
      if (ended) return {0};  // checked first: a failure after the end does not concern the reader
      if (status.phase == Phase::failed) return {-static_cast<std::int64_t>(status.error)};
    }
    if (const int stop = wait.turn(); stop != 0) return {stop};
    if (closed(slot, socket)) return {-EBADF};
  }
}

/// True if the socket works and its rx ring is empty, so that the bytes that the network has are the next ones.
GPUSOCK_FN inline bool can_receive_past_ring(const Side& side, Socket socket, CallerSlot& slot) {
  if (DeviceRef(slot.rx_held).load(ringbuf::kRelaxed) != 0) return false;  // relaxed: own
  const Status status = look_at_status(side, socket, slot);
  return status.generation == table::generation_of(socket) && status.phase == Phase::connected && !status.canceled() &&
         (status.flags & table::kStatusEnded) == 0 &&
         (DeviceRef(slot.flags).load(ringbuf::kRelaxed) & table::kCallerShutRead) == 0 && slot.rx.readable(1) == 0;
}

}  // namespace gpusock::detail
