// The collective socket calls: a leader decides, all threads copy, the leader publishes.
#pragma once

namespace gpusock {
namespace detail {

/// Runs `call` on the group's leader and returns its result, of at most 16 bytes, to all threads. On a GPU the leader
/// may run it before the others have come.
template <class Group, class Call>
GPUSOCK_FN auto value_by_leader(const Group& group, Call call) {
  GPUSOCK_CALL_OF_LEADER(group, call());
  decltype(call()) result{};
  if (group.thread_rank() == 0) result = call();
  result = broadcast(group, result);
  group.sync();
  return result;
}

/// The same for a call that returns a number.
template <class Group, class Call>
GPUSOCK_FN std::int64_t by_leader(const Group& group, Call call) {
  return value_by_leader(group, [&]() -> std::int64_t { return call(); });
}

/// As value_by_leader(), but the leader runs `call` when all threads have come: it may change what they have used until
/// then.
template <class Group, class Call>
GPUSOCK_FN auto value_by_leader_after_all(const Group& group, Call call) {
  GPUSOCK_CALL_OF_LEADER(group, call());
  group.sync();
  return value_by_leader(group, call);
}

template <class Group>
GPUSOCK_FN void copy_in(const Group& group, const ringbuf::RingSpans& to, const void* from) {
  copy(group, to.first.data, from, to.first.bytes);
  if (to.second.bytes != 0)
    copy(group, to.second.data, static_cast<const std::byte*>(from) + to.first.bytes, to.second.bytes);
}

#if !GPUSOCK_ON_GPU
/// Copies into the ring of a peer on another processor, with the kind of stores that has been faster so far.
template <class Group>
void copy_to_peer(const Group& group, Adaptation* adaptation, const ringbuf::RingSpans& to, const void* from) {
  constexpr std::uint64_t kBytesMin = 4 << 10;  // the peer reads fewer bytes at once, while they are still in a cache
  if (group.thread_rank() != 0) return;
  const std::uint64_t bytes = to.first.bytes + to.second.bytes;
  ringbuf::StoreChoice* const stores = adaptation == nullptr ? nullptr : &adaptation->stores;
  const bool chooses = ringbuf::kHasStreamingStores && stores != nullptr && bytes >= kBytesMin;
  if (!chooses || !stores->streaming()) {
    copy_in(this_thread(), to, from);
  } else {
    ringbuf::stream_copy(to.first.data, from, to.first.bytes);
    if (to.second.bytes != 0) {
      ringbuf::stream_copy(to.second.data, static_cast<const std::byte*>(from) + to.first.bytes, to.second.bytes);
    }
  }
  if (chooses && stores->window_is_full(bytes)) stores->end_window(clock_ns());
}
#endif

template <class Group>
GPUSOCK_FN void copy_out(const Group& group, void* to, const ringbuf::RingSpans& from) {
  copy(group, to, from.first.data, from.first.bytes);
  if (from.second.bytes != 0)
    copy(group, static_cast<std::byte*>(to) + from.first.bytes, from.second.data, from.second.bytes);
}

/// False if `bytes` is a negative number that was converted to a size, such as the error of an earlier call.
GPUSOCK_FN constexpr bool is_size(std::size_t bytes) { return bytes <= ~std::size_t{0} / 2; }

/// True if a socket can be opened with this endpoint.
GPUSOCK_FN inline bool can_open(const Endpoint& at) {
  const bool ring_ok = at.ring_bytes == 0 || is_ring_size(at.ring_bytes);
  const bool type_ok = at.type == SocketType::stream || at.type == SocketType::seqpacket;
  const bool link_ok = static_cast<int>(at.link) < kLinkKinds;  // endpoints may come from a peer
  return (at.family == 4 || at.family == 6) && ring_ok && type_ok && link_ok;
}

#if !GPUSOCK_ON_GPU
/// From this size on, the copy into the ring costs more than the barriers that are needed to avoid the copy.
inline constexpr std::uint64_t kDirectBytes = 16 << 10;

/// Moves bytes directly between the network and the caller's memory: as many as the network takes, or has, now. Works
/// only with a Hooks::move_past_ring, and while the ring is empty. Returns the number of bytes. `slot`: read by the
/// leader only; nullptr if the socket is not open.
template <class Group>
std::uint64_t move_past_ring(const Group& group, const Side& side, Socket socket, table::CallerSlot* slot,
                             const detail::PastRing& wanted) {
  if (side.hooks->move_past_ring == nullptr || wanted.bytes < kDirectBytes) return 0;
  group.sync();  // all threads have written what is sent, and none still uses the memory to receive into
  return static_cast<std::uint64_t>(by_leader(group, [&]() -> std::int64_t {
    if (slot == nullptr || slot->link_needs_proxy == 0) return 0;
    if (wanted.sends() ? check_sendable(side, socket, *slot) != 0 : !can_receive_past_ring(side, socket, *slot))
      return 0;
    const std::uint64_t moved = side.hooks->move_past_ring(side.hooks->self, table::slot_of(socket), wanted);
    auto& counter = wanted.sends() ? slot->tx_past_ring : slot->rx_past_ring;
    DeviceRef(counter).fetch_add(moved, ringbuf::kRelaxed);  // relaxed: a counter for people
    return static_cast<std::int64_t>(moved);
  }));
}
#endif

/// Sends with all threads of the group: the part of Net::send() that GPUs run.
template <class Group>
GPUSOCK_FN_BY_ALL std::int64_t send_by_all(const Group& group, const Net& net, Socket socket, const void* data,
                                           std::size_t bytes, int flags, Deadline deadline) {
  GPUSOCK_GROUP_CALL_NAMED(group, "send");
  const Side& at = NetAccess::side(net);
  table::CallerSlot* slot = slot_at(at, socket);
  if (slot == nullptr) return -EBADF;  // the same for all threads; only the leader finds out whether the socket is open
  if (!is_size(bytes)) return -EINVAL;
  if (table::carries_records(socket)) return send_record(group, at, socket, *slot, data, bytes, flags, deadline);
  const bool leads = group.thread_rank() == 0;
  const bool entered = leads && enter(at, socket) != nullptr;
  const Deadline until = with_flags(deadline, flags);
  std::uint64_t done = 0;
  std::int64_t error = 0;
#if !GPUSOCK_ON_GPU
  if ((flags & kMore) == 0) {
    done = move_past_ring(group, at, socket, entered ? slot : nullptr,
                          {PastRing::Direction::send, const_cast<void*>(data), bytes});
  }
#endif
  while (done < bytes || bytes == 0) {
    CopyRange range{-EBADF};
    if (entered) range = wait_writable(at, socket, *slot, bytes == 0 ? 0 : 1, bytes - done, until);
    range = broadcast(group, range);
    if (range.bytes > 0) {
      const ringbuf::RingSpans to = slot->tx.memory().spans(range.position, range.bytes);
      const std::byte* from = static_cast<const std::byte*>(data) + done;
#if !GPUSOCK_ON_GPU
      if (slot->link_needs_proxy == 0) {
        copy_to_peer(group, adaptation(at, socket), to, from);
      } else
#endif
        copy_in(group, to, from);
    }
    group.sync();
    if (range.bytes < 0) error = range.bytes;
    if (range.bytes < 0 || bytes == 0) break;
    done += range.bytes;
    if (leads) {
      slot->tx.commit(range.bytes);
      if (slot->link_needs_proxy != 0 && ((flags & kMore) == 0 || done < bytes)) ring_doorbell(at, socket);
    }
  }
  if (entered) leave(at, socket, *slot);
  return error != 0 && (done == 0 || (flags & kWaitAll) != 0) ? error : static_cast<std::int64_t>(done);
}

/// Receives with all threads of the group: the part of Net::recv() that GPUs run.
template <class Group>
GPUSOCK_FN_BY_ALL std::int64_t recv_by_all(const Group& group, const Net& net, Socket socket, void* data,
                                           std::size_t bytes, int flags, Deadline deadline) {
  GPUSOCK_GROUP_CALL_NAMED(group, "recv");
  const Side& at = NetAccess::side(net);
  table::CallerSlot* slot = slot_at(at, socket);
  if (slot == nullptr) return -EBADF;  // the same for all threads; only the leader finds out whether the socket is open
  if (!is_size(bytes)) return -EINVAL;
  if (table::carries_records(socket)) return recv_record(group, at, socket, *slot, data, bytes, flags, deadline);
  const bool leads = group.thread_rank() == 0;
  const bool entered = leads && enter(at, socket) != nullptr;
  const Deadline until = with_flags(deadline, flags);
  const bool all = (flags & kWaitAll) != 0, peeks = (flags & kPeek) != 0;
  std::uint64_t done = 0;
  std::int64_t error = 0;
#if !GPUSOCK_ON_GPU
  if (!all && !peeks) {
    done = move_past_ring(group, at, socket, entered ? slot : nullptr, {PastRing::Direction::receive, data, bytes});
    if (done != 0) {
      if (entered) leave(at, socket, *slot);
      return static_cast<std::int64_t>(done);
    }
  }
#endif
  do {
    const std::uint64_t left = bytes - done;
    CopyRange range{-EBADF};
    if (entered) {
      if (peeks) slot->rx.forget_arrived();  // what has arrived since an earlier peek is to be seen
      const std::uint64_t half = slot->rx.memory().capacity / 2;
      const std::uint64_t part = peeks ? slot->rx.memory().capacity : (left < half ? left : half);
      const std::uint64_t whole = bytes <= slot->rx.memory().capacity ? bytes : part;
      range = wait_readable(at, socket, *slot, all ? whole : (bytes == 0 ? 0 : 1), left, until);
    }
    range = broadcast(group, range);
    if (range.bytes > 0) {
      copy_out(group, static_cast<std::byte*>(data) + done, slot->rx.memory().spans(range.position, range.bytes));
    }
    group.sync();
    if (range.bytes < 0) error = range.bytes;
    if (range.bytes <= 0) break;
    done += range.bytes;
    if (leads && !peeks) {
      slot->rx.release(range.bytes);
      if (slot->link_needs_proxy != 0) ring_for_credit(at);
    }
  } while (all && !peeks && done < bytes);
  if (entered) leave(at, socket, *slot);
  return error != 0 ? error : static_cast<std::int64_t>(done);
}

static_assert(table::kCallerShutRead == static_cast<int>(Shutdown::read) &&
              table::kCallerShutWrite == static_cast<int>(Shutdown::write));

/// Ends directions of a socket that the caller has entered.
GPUSOCK_FN_APART inline int shut_one(const Side& side, Socket socket, table::CallerSlot& slot, std::uint64_t bits) {
  if (load_status(side, table::slot_of(socket)).phase == table::Phase::listening) return -ENOTCONN;
  if (bits == 0 || bits > 3) return -EINVAL;
  DeviceRef(slot.flags).fetch_or(bits, ringbuf::kRelaxed);  // relaxed: calls look at it by themselves
  std::uint64_t asked = bits * table::kRequestShutdownRead;
  const bool ends_records = (asked & table::kRequestShutdownWrite) != 0 && table::carries_records(socket);
  // Records whose senders have returned may lie after an incomplete one. The end must come after all of them.
  if (ends_records && !end_records(side, slot.records)) asked &= ~std::uint64_t{table::kRequestShutdownWrite};
  return write_request(side, socket, slot, table::generation_of(socket), asked) ? 0 : -EBADF;
}

}  // namespace detail

template <class Group>
GPUSOCK_FN Socket Net::listen(const Group& group, const Endpoint& at, int backlog, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, listen(this_thread(), at, backlog, deadline));
  return static_cast<Socket>(detail::by_leader(group, [&]() -> std::int64_t {
    if (backlog < 1 || backlog > table::kBacklogMax || !detail::can_open(at)) return -EINVAL;
    return detail::open(side(), {at, table::OpenKind::listen, backlog}, table::Phase::listening, deadline.here());
  }));
}

template <class Group>
GPUSOCK_FN Socket Net::accept(const Group& group, Socket listener, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, accept(this_thread(), listener, deadline));
  return static_cast<Socket>(detail::by_leader(
      group, [&]() -> std::int64_t { return detail::accept_one(side(), listener, deadline.here()); }));
}

template <class Group>
GPUSOCK_FN Socket Net::connect(const Group& group, const Endpoint& to, Deadline deadline) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, connect(this_thread(), to, deadline));
  return static_cast<Socket>(detail::by_leader(group, [&]() -> std::int64_t {
    if (to.port == 0 || !detail::can_open(to)) return -EINVAL;
    return detail::open(side(), {to, table::OpenKind::connect, 0}, table::Phase::connected, deadline.here());
  }));
}

template <class Group>
GPUSOCK_FN_OF_GROUP std::int64_t Net::send(const Group& group, Socket socket, const void* data, std::size_t bytes,
                                           int flags, Deadline deadline) const {
  GPUSOCK_CALL_OF_LEADER(group, send(this_thread(), socket, data, bytes, flags, deadline));
  return detail::send_by_all(group, *this, socket, data, bytes, flags, deadline);
}

template <class Group>
GPUSOCK_FN_OF_GROUP std::int64_t Net::recv(const Group& group, Socket socket, void* data, std::size_t bytes, int flags,
                                           Deadline deadline) const {
  GPUSOCK_CALL_OF_LEADER(group, recv(this_thread(), socket, data, bytes, flags, deadline));
  return detail::recv_by_all(group, *this, socket, data, bytes, flags, deadline);
}

template <class Group>
GPUSOCK_FN int Net::shutdown(const Group& group, Socket socket, Shutdown how) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, shutdown(this_thread(), socket, how));
  return static_cast<int>(detail::by_leader(group, [&]() -> std::int64_t {
    table::CallerSlot* slot = detail::enter(side(), socket);  // so that `flags` still belongs to this connection
    if (slot == nullptr) return -EBADF;
    const int result = detail::shut_one(side(), socket, *slot, static_cast<std::uint64_t>(how));
    detail::leave(side(), socket, *slot);
    return result;
  }));
}

template <class Group>
GPUSOCK_FN int Net::close(const Group& group, Socket socket) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, close(this_thread(), socket));
  group.sync();  // no thread of the group is still in an earlier call
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::close_one(side(), socket); }));
}

GPUSOCK_FN inline int Net::getsockname(Socket socket, Endpoint& local) const {
  table::CallerSlot* slot = detail::enter(side(), socket);  // so that the setup still belongs to this connection
  if (slot == nullptr) return -EBADF;
  detail::load_status(side(), table::slot_of(socket));  // T4: orders the setup
  local = Endpoint{side().table.setups[table::slot_of(socket)].local, {}};
  detail::leave(side(), socket, *slot);
  return 0;
}

GPUSOCK_FN inline int Net::getpeername(Socket socket, Endpoint& peer) const {
  table::CallerSlot* slot = detail::enter(side(), socket);  // as in getsockname()
  if (slot == nullptr) return -EBADF;
  const bool listens = detail::load_status(side(), table::slot_of(socket)).phase == table::Phase::listening;
  if (!listens) peer = Endpoint{side().table.setups[table::slot_of(socket)].peer, {}};
  detail::leave(side(), socket, *slot);
  return listens ? -ENOTCONN : 0;
}

}  // namespace gpusock
