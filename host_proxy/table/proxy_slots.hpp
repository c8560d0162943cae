#pragma once
/// @file The proxy's half of the socket table: it grants sockets, publishes their statuses and takes them back.

#include "host_proxy/table/table_memory.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpusock::proxy {

class Connection;
class Listener;

/// The proxy's state of one slot.
struct ProxySlot {
  std::uint32_t generation = 1;  ///< of the handle that is granted or open
  std::uint64_t status = 0;      ///< as last published
  Connection* connection = nullptr;
  Listener* listener = nullptr;
  std::uint64_t opened_ns = 0;  ///< when it was last opened or accepted, for people
  std::int64_t block = -1;      ///< which block opened or accepted it, for people; -1: a host thread, or none yet
};

class ProxySlots {
 public:
  explicit ProxySlots(TableMemory& table);

  std::uint32_t count() const { return static_cast<std::uint32_t>(slots_.size()); }
  ProxySlot& operator[](std::uint32_t slot) { return slots_[slot]; }
  const ProxySlot& operator[](std::uint32_t slot) const { return slots_[slot]; }
  const table::TableView& view() const { return view_; }
  std::int32_t handle(std::uint32_t slot) const { return table::make_handle(slot, slots_[slot].generation); }

  /// Which caller side opened (or will open) this slot.
  SideKind opener(std::uint32_t slot) const;

  /// A free slot for an accepted connection.
  std::optional<std::uint32_t> take_for_accept();

  /// Publishes a socket's status, and with it everything that was written for the socket before.
  void publish(std::uint32_t slot, table::Phase phase, int error = 0, std::uint8_t flags = 0);

  /// Takes a closed socket's slot back and grants it again.
  void release(std::uint32_t slot);

  /// The rings in this memory with the slot's words, as the proxy reaches them.
  table::RingPair rings(std::uint32_t slot, ringbuf::RingMemory tx, ringbuf::RingMemory rx) const;

  /// For a slot that kernels use, if the proxy also writes its words into their device's memory. Changes `callers` so
  /// that kernels poll those words there, while the proxy goes on reading its own. Changes `link` so that the link
  /// writes them there.
  void use_device_words(table::RingPair& callers, table::RingPair& link) const;
  /// Notes that a link was set up that moves bytes without the proxy.
  void note_direct_link() { has_direct_links_.store(true, std::memory_order_relaxed); }
  bool has_direct_links() const { return has_direct_links_.load(std::memory_order_relaxed); }
  /// Sets the position where the slot's stream ends (ProxyWords::rx_final); publish() tells callers.
  void set_final(std::uint32_t slot, std::uint64_t position);

 private:
  void grant(std::uint32_t slot);
  void set(std::uint32_t slot, std::uint64_t table::ProxyWords::*which, std::uint64_t value);

  TableMemory& table_;
  table::TableView view_;
  std::vector<ProxySlot> slots_;
  std::atomic<bool> has_direct_links_{false};  ///< relaxed: the slot's status, published later, orders it
  std::vector<std::uint32_t> accept_pool_;
  ringbuf::HandleProducer<> free_[2];
};

}  // namespace gpusock::proxy
