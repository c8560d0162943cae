// Socket options and counters.
#pragma once

namespace gpusock {
namespace detail {

/// Sets an option to a value. False if the value is invalid.
GPUSOCK_FN inline bool change(table::SocketOptions& options, SocketOption option, std::int64_t value) {
  if (option == SocketOption::linger) {
    options.linger_s = static_cast<std::int32_t>(value);
    return value >= -1 && value <= 0x7fffffff;
  }
  if (option == SocketOption::idle_timeout_ns) {
    options.idle_ms = value < 0 ? 0
                                : static_cast<std::uint32_t>((static_cast<std::uint64_t>(value) + 999'999) / 1'000'000);
    return value == -1 || (value > 0 && value <= std::int64_t{table::SocketOptions::kIdleMsMax} * 1'000'000);
  }
  (option == SocketOption::no_delay ? options.no_delay : options.keep_alive) = value != 0;
  return value == 0 || value == 1;
}

/// Sets an option and publishes the socket's options. Returns 0, -EBADF if the socket was closed, or -EINVAL. Takes the
/// lock of the socket's requests, as write_request().
GPUSOCK_FN_APART inline int write_option(const Side& side, Socket socket, CallerSlot& slot, SocketOption option,
                                         std::int64_t value) {
  DeviceRef options(slot.options);
  lock(side, slot.request_lock);
  const bool open = !closed(slot, socket);
  table::SocketOptions chosen;
  if (open) chosen = table::SocketOptions::unpack(options.load(ringbuf::kRelaxed));  // relaxed: T7 ordered it
  const bool valid = change(chosen, option, value);
  if (open && valid) {
    options.store(chosen.pack(), ringbuf::kRelaxed);  // relaxed: read under the lock, or by itself (getsockopt)
    publish_choices(side, socket, slot);
  }
  unlock(slot.request_lock);
  if (!open) return -EBADF;
  if (valid) ring_doorbell(side, socket);
  return valid ? 0 : -EINVAL;
}

/// Sets how long calls without a deadline wait. This call is counted in, so that the slot stays with this socket.
GPUSOCK_FN_APART inline int set_timeout(const Side& side, Socket socket, std::uint64_t CallerSlot::*timeout_ns,
                                        std::int64_t value) {
  if (value == 0 || value < -1) return -EINVAL;
  CallerSlot* slot = enter(side, socket);
  if (slot == nullptr) return -EBADF;
  // Relaxed: a word by itself. -1 becomes kForever.
  DeviceRef(slot->*timeout_ns).store(static_cast<std::uint64_t>(value), ringbuf::kRelaxed);
  leave(side, socket, *slot);
  return 0;
}

GPUSOCK_FN_APART inline int set_option(const Side& side, Socket socket, SocketOption option, std::int64_t value) {
  CallerSlot* slot = find(side, socket);
  if (slot == nullptr) return -EBADF;
  switch (option) {
    case SocketOption::no_delay:
    case SocketOption::keep_alive:
    case SocketOption::linger:
    case SocketOption::idle_timeout_ns:
      return write_option(side, socket, *slot, option, value);
    case SocketOption::receive_timeout_ns:
      return set_timeout(side, socket, &CallerSlot::receive_timeout_ns, value);
    case SocketOption::send_timeout_ns:
      return set_timeout(side, socket, &CallerSlot::send_timeout_ns, value);
    case SocketOption::error:
    case SocketOption::send_buffer:
    case SocketOption::receive_buffer:
      return -EINVAL;
  }
  return -ENOPROTOOPT;
}

/// An option's value, or a negated errno. They are two members, because a value may be negative.
struct OptionValue {
  std::int64_t error = 0;
  std::int64_t value = 0;
};

/// A timeout as getsockopt() returns it. More than 292 years becomes -1 (for ever).
GPUSOCK_FN inline std::int64_t timeout_value(std::uint64_t& timeout_ns) {
  const std::uint64_t value = DeviceRef(timeout_ns).load(ringbuf::kRelaxed);  // relaxed: by itself
  return value > ~std::uint64_t{0} / 2 ? -1 : static_cast<std::int64_t>(value);
}

GPUSOCK_FN_APART inline OptionValue get_option(const Side& side, Socket socket, SocketOption option) {
  CallerSlot* slot = enter(side, socket);  // so that its rings stay the same
  if (slot == nullptr) return {-EBADF};
  const Status status = look_at_status(side, socket, *slot);
  const std::uint64_t options = DeviceRef(slot->options).load(ringbuf::kRelaxed);  // relaxed: a word by itself
  const auto chosen = table::SocketOptions::unpack(options);
  const bool listens = status.phase == Phase::listening;
  OptionValue result;
  switch (option) {
    case SocketOption::no_delay:
      result.value = chosen.no_delay ? 1 : 0;
      break;
    case SocketOption::keep_alive:
      result.value = chosen.keep_alive ? 1 : 0;
      break;
    case SocketOption::linger:
      result.value = chosen.linger_s;
      break;
    case SocketOption::receive_timeout_ns:
      result.value = timeout_value(slot->receive_timeout_ns);
      break;
    case SocketOption::send_timeout_ns:
      result.value = timeout_value(slot->send_timeout_ns);
      break;
    case SocketOption::idle_timeout_ns:
      result.value = chosen.idle_ms == 0 ? -1 : std::int64_t{chosen.idle_ms} * 1'000'000;
      break;
    case SocketOption::error:
      result.value = status.error;
      break;
    case SocketOption::send_buffer:
      result = {listens ? -ENOTCONN : 0, static_cast<std::int64_t>(slot->tx.memory().capacity)};
      break;
    case SocketOption::receive_buffer:
      result = {listens ? -ENOTCONN : 0, static_cast<std::int64_t>(slot->rx.memory().capacity)};
      break;
    default:
      result.error = -ENOPROTOOPT;
  }
  leave(side, socket, *slot);
  return result;
}

/// What one ring's words say: bytes that were committed, bytes that were consumed, and bytes in the ring.
struct RingFacts {
  std::uint64_t committed = 0;
  std::uint64_t consumed = 0;
  std::uint64_t between = 0;
};

GPUSOCK_FN inline RingFacts facts_of(const table::RingSetup& ring) {
  // Relaxed, both: for people.
  const std::uint64_t consumed = ring.memory.position_of(SystemRef(*ring.consumed).load(ringbuf::kRelaxed));
  const std::uint64_t committed = ring.memory.committed_of(SystemRef(*ring.committed).load(ringbuf::kRelaxed),
                                                           consumed);
  const std::uint64_t between = committed - consumed;
  return {committed - ring.start, consumed - ring.start,
          between < ring.memory.capacity ? between : ring.memory.capacity};
}

}  // namespace detail

template <class Group>
GPUSOCK_FN int Net::setsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t value) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, setsockopt(this_thread(), socket, option, value));
  return static_cast<int>(
      detail::by_leader(group, [&]() -> std::int64_t { return detail::set_option(side(), socket, option, value); }));
}

template <class Group>
GPUSOCK_FN int Net::getsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t& value) const {
  GPUSOCK_GROUP_CALL_OF_ONE(group, getsockopt(this_thread(), socket, option, value), value);
  detail::OptionValue result;
  if (group.thread_rank() == 0) result = detail::get_option(side(), socket, option);
  result = detail::broadcast(group, result);
  group.sync();
  if (result.error == 0) value = result.value;
  return static_cast<int>(result.error);
}

GPUSOCK_FN inline int Net::stats(Socket socket, SocketStats& stats) const {
  table::CallerSlot* slot = detail::enter(side(), socket);  // so that its rings stay the same
  if (slot == nullptr) return -EBADF;
  const bool listens = detail::load_status(side(), table::slot_of(socket)).phase == table::Phase::listening;
  if (!listens) {
    const table::SocketSetup& setup = side().table.setups[table::slot_of(socket)];
    const detail::RingFacts tx = detail::facts_of(setup.rings.tx), rx = detail::facts_of(setup.rings.rx);
    // Relaxed, both: counters for people.
    stats.bytes_sent = tx.committed + detail::DeviceRef(slot->tx_past_ring).load(ringbuf::kRelaxed);
    stats.bytes_received = rx.consumed + detail::DeviceRef(slot->rx_past_ring).load(ringbuf::kRelaxed);
    stats.bytes_unsent = tx.between;
    stats.bytes_unread = rx.between;
    stats.send_buffer = setup.rings.tx.memory.capacity;
    stats.receive_buffer = setup.rings.rx.memory.capacity;
    stats.link = setup.local.link;
    stats.type = setup.local.type;
  }
  detail::leave(side(), socket, *slot);
  return listens ? -ENOTCONN : 0;
}

}  // namespace gpusock
