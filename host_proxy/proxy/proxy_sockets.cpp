// Proxy::sockets(): one pass over the slots, on the words that callers and links keep anyway.
#include "host_proxy/proxy/proxy.hpp"

#include <algorithm>

namespace gpusock::proxy {
namespace {

std::uint64_t load(const std::uint64_t* word) {
  return ringbuf::SystemAtomics::Ref<std::uint64_t>(*const_cast<std::uint64_t*>(word))
      .load(ringbuf::kRelaxed);  // for people
}

/// Reads the consumer's word first, so that the producer's cannot be less. Only the copy of a word in device memory can
/// be less. A peer's word may still be invalid.
std::uint64_t fill_of(const table::RingSetup& ring) {
  const std::uint64_t consumed = load(ring.host_consumed());
  const std::uint64_t fill = load(ring.host_committed()) - consumed;
  const bool is_late = ring.committed_copy != nullptr && static_cast<std::int64_t>(fill) < 0;
  return is_late ? 0 : std::min(fill, ring.memory.capacity);
}

/// Where the bytes lie, and the words that callers use.
RingPlaces places_of(RingPlacement bytes, const table::RingPair& rings, RingPlacement status) {
  const auto word = [](const std::uint64_t* copy) {
    return copy != nullptr ? RingPlacement::device : RingPlacement::host;
  };
  return {bytes,
          word(rings.tx.committed_copy),
          word(rings.tx.consumed_copy),
          word(rings.rx.committed_copy),
          word(rings.rx.consumed_copy),
          status};
}

SocketState state_of(const Connection& connection, const table::Status& status, bool accepted) {
  if (connection.closed()) return SocketState::closing;
  if (status.error != 0) return SocketState::failed;
  if (connection.link() == nullptr) return SocketState::opening;
  return accepted ? SocketState::connected : SocketState::waiting;
}

}  // namespace

void Proxy::describe(const Connection& connection, SocketInfo& info) const {
  info.local = connection.local();
  info.peer = connection.peer();
  if (connection.link() == nullptr) {
    info.link_reason = connection.opening_reason();
    return;
  }
  info.link = connection.link_kind();
  info.link_reason = connection.link_reason();
  const table::RingPair& rings = slots_.view().setups[connection.slot()].rings;
  info.ring_bytes = rings.tx.memory.capacity;
  const bool polls_on_device = table_.has_device_words() && connection.is_kernels();
  info.places = places_of(connection.ring_placement(), rings,
                          polls_on_device ? RingPlacement::device : RingPlacement::host);
  info.tx_ring_fill = fill_of(rings.tx);
  info.rx_ring_fill = fill_of(rings.rx);
  const Link::Traffic traffic = connection.link()->traffic();
  info.tx_bytes = traffic.tx_bytes;
  // The p2p link counts bytes once callers have read them.
  info.rx_bytes = traffic.rx_bytes + (info.link == LinkKind::p2p ? info.rx_ring_fill : 0);
}

SocketInfo Proxy::describe_slot(std::uint32_t slot, std::uint64_t now_ns) const {
  const ProxySlot& state = slots_[slot];
  const auto status = table::Status::unpack(load(&slots_.view().proxy_words[slot].status));
  SocketInfo info;
  info.handle = slots_.handle(slot);
  info.block = state.block;
  info.age_ns = now_ns - std::min(now_ns, state.opened_ns);
  info.peer_ended = (status.flags & table::kStatusEnded) != 0;
  info.peer_read_shut_down = (status.flags & table::kStatusPeerReadShutDown) != 0;
  if (state.listener != nullptr) {
    info.state = SocketState::listening;
    info.local = state.listener->local();
    info.link = state.listener->asked().link;
    info.pending = state.listener->pending();
    info.backlog = state.listener->backlog();
  } else if (state.connection != nullptr) {
    if (state.connection->carries_records()) info.handle |= table::kRecordBit;
    info.state = state_of(*state.connection, status, accept_queue_of_[slot] == kNone);
    describe(*state.connection, info);
  } else {
    info.state = SocketState::failed;
  }
  if (info.state == SocketState::failed) info.error = status.error;
  return info;
}

std::vector<SocketInfo> Proxy::sockets(std::uint64_t now_ns) const {
  std::vector<SocketInfo> all;
  for (std::uint32_t slot = 0; slot < slots_.count(); ++slot) {
    const ProxySlot& state = slots_[slot];
    const bool failed = table::Status::unpack(load(&slots_.view().proxy_words[slot].status)).phase ==
                        table::Phase::failed;
    if (state.listener != nullptr || state.connection != nullptr || failed) all.push_back(describe_slot(slot, now_ns));
  }
  for (const auto& connection : connections_) {
    if (connection->has_slot()) continue;
    describe(*connection, all.emplace_back());  // an incoming one that has not agreed on a link yet
  }
  return all;
}

TcpInfo Proxy::tcp_info(std::int32_t handle) const {
  const std::uint32_t slot = handle < 0 ? slots_.count() : table::slot_of(handle);
  if (slot >= slots_.count() || slots_[slot].connection == nullptr) return {};
  return slots_[slot].connection->tcp_info();
}

}  // namespace gpusock::proxy
