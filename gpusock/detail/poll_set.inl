// Poll sets: the group's leader takes the slots that the proxy has written, and the group looks only at their sockets
// (socket_table/poll_set.hpp).
#pragma once

namespace gpusock {
namespace detail {

using table::CallerSet;
using table::PollSetWords;
static_assert(table::kWatchIn == kPollIn && table::kWatchOut == kPollOut);

/// PollEvents that a watch may have.
inline constexpr int kWatchable = kPollIn | kPollOut | kPollNval | kPollEdge;
/// A bit of PollEvent::events while a group looks: the slot stays marked.
inline constexpr int kStaysMarked = 1 << 16;

GPUSOCK_FN inline int lowest_bit(std::uint64_t bits) {
#if GPUSOCK_ON_GPU
  return __ffsll(static_cast<long long>(bits)) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

/// True if `set` is the handle of an open set of this caller side.
GPUSOCK_FN inline bool is_open_set(const Side& side, PollSet set) {
  const std::uint32_t generation = table::generation_of_set(set), index = table::index_of_set(set);
  const bool given_out = set >= 0 && (generation & 1) != 0 && index - side.sets->first < side.sets->own;
  if (!given_out) return false;
  // Relaxed: as after enter_set(), what a caller does next does not depend on this load.
  return table::generation_in(DeviceRef(side.sets->callers[index].generation_and_users).load(ringbuf::kRelaxed)) ==
         generation;
}

/// Counts a call out of a set.
GPUSOCK_FN inline void leave_set(CallerSet& own) {
  DeviceRef(own.generation_and_users).fetch_add(~std::uint64_t{0}, ringbuf::kRelease);  // W3, pairs with W4
}

/// Counts in a call that uses the set, until leave_set(). Returns nullptr (-EBADF) if the set is not open.
GPUSOCK_FN_APART inline CallerSet* enter_set(const Side& side, PollSet set) {
  if (!is_open_set(side, set)) return nullptr;
  CallerSet& own = side.sets->callers[table::index_of_set(set)];
  const std::uint64_t before = DeviceRef(own.generation_and_users).fetch_add(1, ringbuf::kRelaxed);  // relaxed: as
                                                                                                     // CallerSlot's
  if (table::generation_in(before) == table::generation_of_set(set)) return &own;
  leave_set(own);
  return nullptr;
}

/// Changes a set's generation to the next one, and tells the proxy and the other caller side. The caller holds the
/// lock.
GPUSOCK_FN inline std::uint32_t next_set_generation(const Side& side, std::uint32_t index) {
  DeviceRef word(side.sets->callers[index].generation_and_users);
  const std::uint64_t before = word.fetch_add(std::uint64_t{1} << table::kSlotUserBits, ringbuf::kAcquire);  // W4
  const std::uint32_t generation = table::next_generation(table::generation_in(before));
  SystemRef shared(side.sets->words[index].generation);
  shared.store(generation, ringbuf::kRelaxed);  // relaxed: a caller that has the handle has it from after this
  if (side.sets->polled != side.sets->words) {
    SystemRef polled(side.sets->polled[index].generation);
    polled.store(generation, ringbuf::kRelaxed);  // relaxed: as above
  }
  return generation;
}

/// Opens this set if it is free. Returns its handle, or -1.
GPUSOCK_FN_APART inline PollSet try_open_set(const Side& side, std::uint32_t index) {
  CallerSet& own = side.sets->callers[index];
  const auto is_free = [&] {  // relaxed: W4 orders what the last users did
    const std::uint64_t word = DeviceRef(own.generation_and_users).load(ringbuf::kRelaxed);
    return (table::generation_in(word) & 1) == 0 && table::users_in(word) == 0;
  };
  if (!is_free()) return -1;
  PollSet set = -1;
  lock(side, own.lock);
  if (is_free()) {
    set = table::make_set(index, next_set_generation(side, index));
    const bool first = own.changed.memory().capacity == 0;
    if (first) {
      own.changed = {side.sets->ring(index), &side.sets->polled[index].published, &side.sets->taken[index]};
    }
    own.wakes_seen[0] = own.wakes_seen[1] = 0;
  }
  unlock(own.lock);
  return set;
}

GPUSOCK_FN_APART inline PollSet open_one_set(const Side& side) {
  if (canceled(side)) return -ECANCELED;
  for (std::uint32_t i = 0; i < side.sets->own; ++i) {
    if (const PollSet set = try_open_set(side, side.sets->first + i); set >= 0) return set;
  }
  return -EMFILE;
}

GPUSOCK_FN_APART inline int close_one_set(const Side& side, PollSet set) {
  if (!is_open_set(side, set)) return -EBADF;
  CallerSet& own = side.sets->callers[table::index_of_set(set)];
  lock(side, own.lock);
  const bool open = is_open_set(side, set);  // if not, another thread closed it first
  if (open) next_set_generation(side, table::index_of_set(set));
  unlock(own.lock);
  return open ? 0 : -EBADF;
}

/// How often the set was woken since the last call with `remember`. `remember`: the next call counts from now on.
GPUSOCK_FN_APART inline std::uint64_t count_wakes(const Side& side, PollSet set, CallerSet& own, bool remember) {
  std::uint64_t count = 0;
  for (int i = 0; i < 2; ++i) {
    SystemRef shared(side.sets->polled[table::index_of_set(set)].wakes[i]);
    const std::uint64_t wakes = shared.load(ringbuf::kAcquire);  // W2, pairs with W1
    if (wakes >> 32 != table::generation_of_set(set)) continue;
    const bool seen = own.wakes_seen[i] >> 32 == wakes >> 32;
    count += (wakes - (seen ? own.wakes_seen[i] : 0)) & 0xffffffffu;
    if (remember) own.wakes_seen[i] = wakes;
  }
  return count;
}

/// Marks a slot, so that the group looks at it. Relaxed: a mark by watch() is only a hint, because the proxy's entry
/// follows; all other marks are written by the waiting group itself.
GPUSOCK_FN inline void mark(CallerSet& own, std::uint32_t slot) {
  DeviceRef(own.marked[slot / 64]).fetch_or(std::uint64_t{1} << slot % 64, ringbuf::kRelaxed);
}

/// True if other calls on this caller side may also make the socket ready: a sender that gives up a record gives room
/// to others.
GPUSOCK_FN inline bool shares_room(Socket socket, int events) {
  return table::carries_records(socket) && (events & kPollOut) != 0;
}

/// True if the proxy does not see every change that makes the socket ready: on p2p the peer's callers write the rings'
/// words, and on verbs the NIC may.
GPUSOCK_FN inline bool is_ready_unseen(const Side& side, Socket socket, int events) {
  const std::uint32_t slot = table::slot_of(socket);
  if (load_status(side, slot).phase == Phase::listening) return false;
  const table::RingPair& rings = side.table.setups[slot].rings;
  const table::ProxyWords& words = side.table.proxy_words[slot];
  const bool proxy_writes = rings.rx.committed == &words.rx_arrived && rings.tx.consumed == &words.tx_freed;
  return !proxy_writes || shares_room(socket, events);
}

/// Changes which set watches a socket that the caller has entered, and tells the proxy. Takes the lock of its requests,
/// as write_option(). `before`: the set that may watch the socket already; `watch.set` is the same, or 0 for none.
GPUSOCK_FN_APART inline int write_watch(const Side& side, CallerSlot& slot, PollSet before, const table::Watch& watch) {
  lock(side, slot.request_lock);
  const bool open = !closed(slot, watch.socket), ends = watch.set == 0;
  const bool elsewhere = slot.watch.set != before && (ends || is_open_set(side, slot.watch.set));
  if (open && !elsewhere) {
    slot.watch = watch;
    slot.watch.number = (slot.requests >> table::kChangeShift) + 1;
    publish_choices(side, watch.socket, slot);
  }
  unlock(slot.request_lock);
  if (!open) return -EBADF;
  if (elsewhere) return ends ? -ENOENT : -EBUSY;
  ring_doorbell(side, watch.socket);
  return 0;
}

/// Runs `call` if the set and the socket are open; otherwise returns -EBADF.
template <class Call>
GPUSOCK_FN int in_set(const Side& side, PollSet set, Socket socket, Call call) {
  CallerSet* own = enter_set(side, set);
  if (own == nullptr) return -EBADF;
  int result = -EBADF;
  if (CallerSlot* slot = enter(side, socket)) {
    result = call(*own, *slot);
    leave(side, socket, *slot);
  }
  leave_set(*own);
  return result;
}

GPUSOCK_FN_APART inline int watch_one(const Side& side, PollSet set, Socket socket, int events, std::uint64_t tag) {
  if ((events & ~kWatchable) != 0) return -EINVAL;
  return in_set(side, set, socket, [&](CallerSet& own, CallerSlot& slot) {
    const bool looked_at = is_ready_unseen(side, socket, events);
    const int kept = shares_room(socket, events) ? events & ~kPollEdge : events;  // no word shows that room
    const int result = write_watch(side, slot, set, {set, socket, kept, looked_at, tag, 0, 0});
    if (result == 0) mark(own, table::slot_of(socket));
    return result;
  });
}

GPUSOCK_FN_APART inline int unwatch_one(const Side& side, PollSet set, Socket socket) {
  return in_set(side, set, socket, [&](CallerSet&, CallerSlot& slot) {
    table::Watch none;
    none.socket = socket;
    return write_watch(side, slot, set, none);
  });
}

/// Returns the slot's watch, which the slot's lock guards.
GPUSOCK_FN_APART inline table::Watch load_watch(const Side& side, CallerSlot& slot) {
  lock(side, slot.request_lock);
  const table::Watch watch = slot.watch;
  unlock(slot.request_lock);
  return watch;
}

/// Notes the ready_words() at which a watch was reported, unless the watch was changed meanwhile.
GPUSOCK_FN_APART inline void note_reported(const Side& side, CallerSlot& slot, const table::Watch& watch,
                                           std::uint64_t words) {
  lock(side, slot.request_lock);
  const bool same = slot.watch.socket == watch.socket && slot.watch.number == watch.number;
  if (same) slot.watch.reported = words;
  unlock(slot.request_lock);
}

/// A number that changes whenever a word changes that may make the socket ready: none of these words ever decreases.
/// Never 0.
GPUSOCK_FN_APART inline std::uint64_t ready_words(const Side& side, Socket socket, CallerSlot& slot, int events) {
  const table::SocketSetup& setup = side.table.setups[table::slot_of(socket)];
  const Status status = load_status(side, table::slot_of(socket));
  std::uint64_t words = 1 + status.pack();
  // Relaxed, all: only compared.
  if (status.phase == Phase::listening) {
    return words + SystemRef(side.table.accept_published[setup.accept_queue]).load(ringbuf::kRelaxed);
  }
  words += DeviceRef(slot.flags).load(ringbuf::kRelaxed) & (table::kCallerShutRead | table::kCallerShutWrite);
  if ((events & kPollIn) != 0) words += SystemRef(*setup.rings.rx.committed).load(ringbuf::kRelaxed);
  if ((events & kPollOut) != 0) words += SystemRef(*setup.rings.tx.consumed).load(ringbuf::kRelaxed);
  return words;
}

/// Looks at the slot whose number is in `event.socket`. Replaces `event` by what the set returns for the slot; without
/// events, the set returns nothing for it. `reports`: the event will be returned.
GPUSOCK_FN_APART inline void look_at(const Side& side, PollSet set, PollEvent& event, bool reports) {
  CallerSlot& slot = side.slots[event.socket];
  const table::Watch watch = load_watch(side, slot);
  event.events = 0;
  CallerSlot* open = watch.set == set ? enter(side, watch.socket) : nullptr;  // so that its rings stay the same
  if (open == nullptr) return;
  const bool edge = (watch.events & kPollEdge) != 0;
  std::uint64_t words = edge ? ready_words(side, watch.socket, slot, watch.events) : 0;
  const auto look = [&] {
    return events_of_open(side, watch.socket, slot, watch.events & (kPollIn | kPollOut), reports) & ~kContextEnds;
  };
  int events = look();
  // The number is read before the look, so that no change is lost. A change between the two would be reported twice.
  for (int again = 0; edge && again < 2; ++again) {
    const std::uint64_t now = ready_words(side, watch.socket, slot, watch.events);
    if (now == words) break;
    words = now;
    events = look();
  }
  if (edge && words == watch.reported) events = 0;
  if (edge && events != 0 && reports) note_reported(side, slot, watch, words);
  leave(side, watch.socket, slot);
  const bool stays = watch.looked_at != 0 || (events != 0 && !edge);
  event = {watch.socket, events | (stays ? kStaysMarked : 0), watch.tag};
}

/// A pass through the marked slots that begins where the last pass ended. The leader uses it.
struct Sweep {
  CallerSet& own;
  std::uint32_t words;      ///< number of words, of 64 slots each
  std::uint32_t visit = 0;  ///< the first word is visited twice: its higher slots first, its lower ones last
  std::uint32_t word = 0;
  std::uint64_t rest = 0;         ///< slots of this word that were unmarked and are not taken yet
  std::uint64_t next = own.next;  ///< the slot after the last one that was taken

  GPUSOCK_FN bool next_word() {
    const std::uint64_t first = own.next / 64, higher = ~std::uint64_t{0} << own.next % 64;
    for (; visit <= words; ++visit) {
      word = static_cast<std::uint32_t>((first + visit) % words);
      const std::uint64_t part = visit == 0 ? higher : visit == words ? ~higher : ~std::uint64_t{0};
      DeviceRef marked(own.marked[word]);
      if ((marked.load(ringbuf::kRelaxed) & part) == 0) continue;  // relaxed, as the next: see mark()
      rest = marked.fetch_and(~part, ringbuf::kRelaxed) & part;
      ++visit;
      return true;
    }
    return false;
  }

  /// Takes up to `room` slots, and returns their number.
  GPUSOCK_FN int take(PollEvent* events, int room) {
    int count = 0;
    while (count < room && (rest != 0 || next_word())) {
      const int bit = lowest_bit(rest);
      rest &= rest - 1;
      const std::uint32_t slot = word * 64 + static_cast<std::uint32_t>(bit);
      events[count++].socket = static_cast<Socket>(slot);
      next = (slot + 1) % (words * 64);
    }
    own.looks += static_cast<std::uint64_t>(count);
    return count;
  }

  /// Marks the slots in `rest` again. The next pass begins after the last slot that was taken.
  GPUSOCK_FN void end() {
    if (rest != 0) DeviceRef(own.marked[word]).fetch_or(rest, ringbuf::kRelaxed);  // relaxed: see mark()
    own.next = next;
  }
};

/// Begins a group's wait; until end_wait() no other group can wait on the set. Returns 0, or a negated errno.
GPUSOCK_FN_APART inline int begin_wait(const Side& side, PollSet set, CallerSet*& own) {
  if (canceled(side)) return -ECANCELED;
  CallerSet* entered = enter_set(side, set);
  if (entered == nullptr) return -EBADF;
  if (DeviceRef(entered->waiting).exchange(1, ringbuf::kAcquire) != 0) {  // T7, pairs with T8
    leave_set(*entered);
    return -EBUSY;
  }
  own = entered;
  return 0;
}

GPUSOCK_FN inline void end_wait(CallerSet& own) {
  DeviceRef(own.waiting).store(0, ringbuf::kRelease);  // T8: before W3
  leave_set(own);
}

/// Marks the slots that the proxy has written. The words of their sockets are read after this (C1).
GPUSOCK_FN_APART inline void take_changes(const Side& side, CallerSet& own) {
  const std::uint64_t bytes = own.changed.readable();
  if (bytes == 0 || bytes == ringbuf::kRingCorrupt) return;
  for (std::uint64_t at = 0; at < bytes; at += sizeof(table::SetEntry)) {
    const ringbuf::RingMemory& ring = own.changed.memory();
    table::SetEntry slot = 0;
    __builtin_memcpy(&slot, ring.data + ring.index_of(own.changed.position() + at), sizeof slot);
    mark(own, static_cast<std::uint32_t>(slot));
  }
  own.changed.release(bytes);
  ring_for_credit(side);  // the proxy may hold back an entry until these were taken
}

/// True if the proxy has written slots, or the set was woken.
GPUSOCK_FN inline bool has_news(const Side& side, PollSet set, CallerSet& own) {
  return own.changed.readable(1) != 0 || count_wakes(side, set, own, false) != 0;
}

/// True if the group has something to look at. For the leader of a group that waits.
GPUSOCK_FN_APART inline bool set_stirs(const Side& side, PollSet set, CallerSet& own) {
  if (!is_open_set(side, set) || has_news(side, set, own)) return true;
  for (std::uint32_t word = 0; word * 64 < side.table.slots; ++word) {
    // Relaxed: see mark().
    for (std::uint64_t rest = DeviceRef(own.marked[word]).load(ringbuf::kRelaxed); rest != 0; rest &= rest - 1) {
      PollEvent event{static_cast<Socket>(word * 64 + static_cast<std::uint32_t>(lowest_bit(rest)))};
      look_at(side, set, event, false);
      ++own.looks;
      if (event.events != kStaysMarked) return true;
    }
  }
  return false;
}

/// Moves the entries that have an event to the front, and returns their number. Marks the slots that stay marked.
GPUSOCK_FN inline int keep_events(CallerSet& own, PollEvent* events, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    PollEvent event = events[i];
    if ((event.events & kStaysMarked) != 0) mark(own, table::slot_of(event.socket));
    event.events &= ~kStaysMarked;
    if (event.events != 0) events[kept++] = event;
  }
  return kept;
}

/// Looks at the marked slots until there are `max` events. Returns the number of events, including the `found` ones
/// from before. The threads of the group look in parallel.
template <class Group>
GPUSOCK_FN int look_at_marked(const Group& group, const Side& side, PollSet set, CallerSet& own, PollEvent* events,
                              int found, int max) {
  Sweep sweep{own, (side.table.slots + 63) / 64};
  for (int count = 1; count != 0;) {
    count = static_cast<int>(by_leader(group, [&] { return sweep.take(events + found, max - found); }));
    for (int i = static_cast<int>(group.thread_rank()); i < count; i += static_cast<int>(group.num_threads())) {
      look_at(side, set, events[found + i], true);
    }
    group.sync();
    found += static_cast<int>(by_leader(group, [&] { return keep_events(own, events + found, count); }));
  }
  if (group.thread_rank() == 0) sweep.end();
  return found;
}

}  // namespace detail

template <class Group>
GPUSOCK_FN PollSet Net::open_set(const Group& group) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, open_set(this_thread()));
  return static_cast<PollSet>(detail::by_leader(group, [&]() -> std::int64_t { return detail::open_one_set(side()); }));
}

template <class Group>
GPUSOCK_FN int Net::watch(const Group& group, PollSet set, Socket socket, int events, std::uint64_t tag) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, watch(this_thread(), set, socket, events, tag));
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::watch_one(side(), set, socket, events, tag); }));
}

template <class Group>
GPUSOCK_FN int Net::unwatch(const Group& group, PollSet set, Socket socket) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, unwatch(this_thread(), set, socket));
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::unwatch_one(side(), set, socket); }));
}

template <class Group>
GPUSOCK_FN int Net::wait(const Group& group, PollSet set, PollEvent* events, int max, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, wait(this_thread(), set, events, max, deadline));
  if (events == nullptr || max < 1) return -EINVAL;
  const detail::Side& at = side();
  detail::Wait wait(at, deadline.here(), true);
  table::CallerSet* entered = nullptr;  // used by the leader only
  int stop = static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::begin_wait(at, set, entered); }));
  if (stop != 0) return stop;
  table::CallerSet& own = at.sets->callers[table::index_of_set(set)];
  int found = 0;
  while (stop == 0 && found == 0) {
    found = static_cast<int>(detail::by_leader(group, [&]() -> std::int64_t {
      detail::take_changes(at, own);
      const std::uint64_t wakes = detail::count_wakes(at, set, own, true);
      if (wakes != 0) events[0] = {-1, kPollWake, wakes};
      return wakes != 0;
    }));
    found = detail::look_at_marked(group, at, set, own, events, found, max);
    stop = static_cast<int>(detail::by_leader(group, [&]() -> std::int64_t {
      if (detail::canceled(at)) return -ECANCELED;
      if (!detail::is_open_set(at, set)) return -EBADF;
      // On a GPU, wait_for_event() returns after one turn, and all threads look again.
      if (found != 0 || (!GPUSOCK_ON_GPU && detail::has_news(at, set, own))) return 0;
      return detail::wait_for_event(group, at, wait, [&] { return detail::set_stirs(at, set, own); });
    }));
  }
  if (group.thread_rank() == 0) detail::end_wait(own);
  return stop == -ECANCELED || stop == -EBADF ? stop : found;
}

template <class Group>
GPUSOCK_FN int Net::wake(const Group& group, PollSet set) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, wake(this_thread(), set));
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::wake_one_set(side(), set); }));
}

template <class Group>
GPUSOCK_FN int Net::close_set(const Group& group, PollSet set) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, close_set(this_thread(), set));
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::close_one_set(side(), set); }));
}

}  // namespace gpusock
