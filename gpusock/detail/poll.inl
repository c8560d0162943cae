// Waiting for one of many sockets: the group's threads look at them, its leader waits.
#pragma once

namespace gpusock {
namespace detail {

/// The events that poll reports for a socket with this status. `may_ring`: if there is no room to send, rings the
/// doorbell for bytes that kMore held back.
GPUSOCK_FN inline int events_of_stream(const Side& side, Socket socket, CallerSlot& slot, const Status& status,
                                       int wanted, bool may_ring) {
  if (status.phase == Phase::failed) return (wanted & (kPollIn | kPollOut)) | kPollErr | kPollHup;
  if (status.phase != Phase::connected) return 0;
  const auto flags = DeviceRef(slot.flags).load(ringbuf::kRelaxed);  // relaxed: each flag by itself
  const bool no_more_in = (status.flags & table::kStatusEnded) != 0 || (flags & table::kCallerShutRead) != 0;
  const bool no_more_out = (status.flags & table::kStatusPeerReadShutDown) != 0 ||
                           (flags & table::kCallerShutWrite) != 0;
  const bool broken = status.error != 0;  // nothing can be sent; bytes that arrived before are still delivered
  int events = broken ? kPollErr | kPollHup : no_more_in && no_more_out ? kPollHup : 0;
  const bool records = table::carries_records(socket);
  if ((wanted & kPollIn) != 0) {
    const bool arrived = records ? record_waits(slot.rx) : slot.rx.readable_at_a_glance() != 0;
    if (no_more_in || arrived) events |= kPollIn;
  }
  if ((wanted & kPollOut) == 0) return events;
  if (broken || no_more_out || (records ? record_fits(side, slot) : slot.tx.writable_at_a_glance() != 0)) {
    events |= kPollOut;
  } else if (may_ring && slot.link_needs_proxy != 0) {
    ring_doorbell(side, socket);
  }
  return events;
}

/// A bit beside a socket's events: the context ends.
inline constexpr int kContextEnds = 1 << 20;

/// The events that poll reports for a socket that the caller has entered, or kContextEnds.
GPUSOCK_FN inline int events_of_open(const Side& side, Socket socket, CallerSlot& slot, int wanted, bool may_ring) {
  const Status status = look_at_status(side, socket, slot);
  if (status.canceled()) return kContextEnds;
  if (status.phase != Phase::listening) return events_of_stream(side, socket, slot, status, wanted, may_ring);
  const auto queue = side.accept_queue(side.table.setups[table::slot_of(socket)].accept_queue);
  return (wanted & kPollIn) != 0 && !queue.empty() ? kPollIn : 0;
}

/// The events that poll reports for this socket now, or kContextEnds.
GPUSOCK_FN_APART inline int events_of(const Side& side, Socket socket, int wanted, bool may_ring) {
  CallerSlot* slot = enter(side, socket);  // so that its rings stay the same meanwhile
  if (slot == nullptr) return canceled(side) ? kContextEnds : kPollNval;
  const int events = events_of_open(side, socket, *slot, wanted, may_ring);
  leave(side, socket, *slot);
  return events;
}

/// The leader's part of a wait for an event. Returns 0 if the group must look again, or a negated errno to stop.
///
/// On a GPU all threads look after each turn, in parallel. A CPU runs a block's threads one after the other. There only
/// the leader looks, until `any_event()` is true, and the other threads stay at the group's barrier. So a group's wait
/// costs as much as one thread's. The leader is then the only thread of the block that can run; under that condition
/// cpu_device::relax() backs off.
template <class Group, class AnyEvent>
GPUSOCK_FN int wait_for_event(const Group& group, const Side& side, Wait& wait, AnyEvent any_event) {
  for (;;) {
    const int stop = wait.turn();
    const bool all_look = GPUSOCK_ON_GPU || group.num_threads() == 1;
    if (stop != 0 || all_look || canceled(side) || any_event()) return stop;
  }
}

/// True if an entry has an event now.
GPUSOCK_FN inline bool any_event(const Side& side, const PollEntry* entries, int count) {
  for (int i = 0; i < count; ++i) {
    if (entries[i].socket >= 0 && events_of(side, entries[i].socket, entries[i].events, false) != 0) return true;
  }
  return false;
}

}  // namespace detail

template <class Group>
GPUSOCK_FN int Net::poll(const Group& group, PollEntry* entries, int count, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, poll(this_thread(), entries, count, deadline));
  if (count < 0 || (count > 0 && entries == nullptr)) return -EINVAL;
  const detail::Side& at = side();
  detail::Wait wait(at, deadline.here(), true);
  group.sync();  // another thread may have written the entries
  for (std::uint32_t turn = 0;; ++turn) {
    int found = 0;
    for (int i = static_cast<int>(group.thread_rank()); i < count; i += static_cast<int>(group.num_threads())) {
      const int events = entries[i].socket < 0 ? 0
                                               : detail::events_of(at, entries[i].socket, entries[i].events, turn == 0);
      entries[i].revents = static_cast<std::int16_t>(events & ~detail::kContextEnds);
      found += (events & detail::kContextEnds) != 0 ? detail::kContextEnds : events != 0;
    }
    found = detail::sum(group, found);
    const auto stop = static_cast<int>(detail::by_leader(group, [&]() -> std::int64_t {
      if (found >= detail::kContextEnds) return -ECANCELED;
      if (found != 0) return 0;
      // If there are sockets, their statuses say this as well.
      if (turn % at.status_turns == 0 && detail::canceled(at)) return -ECANCELED;
      return detail::wait_for_event(group, at, wait, [&] { return detail::any_event(at, entries, count); });
    }));
    if (stop == -ECANCELED) return stop;
    if (stop != 0 || found != 0) return found;
  }
}

}  // namespace gpusock
