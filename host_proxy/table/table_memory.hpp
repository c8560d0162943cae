#pragma once
/// @file TableMemory owns the memory of the socket table, which callers and the proxy share.

#include "plain_types/ring_placement.hpp"
#include "host_proxy/memory/platform.hpp"
#include "socket_table/socket_table.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gpusock::proxy {

/// A caller side: a context's host threads, or its kernels. On the CPU device both are the host's.
enum class SideKind : int { host = 0, device = 1 };

/// The words that the proxy writes and callers poll are in host memory. Kernels may poll a copy in their device's
/// memory, into which the host writes each change (ringbuf/bar_write.hpp): the *device's words*.
///
/// The slots are in three pools of `sockets_max` each: for sockets that host threads open, for sockets that kernels
/// open, and for accepted connections. Without a caller side of the device there is no pool for kernels.
class TableMemory {
 public:
  /// Kernels poll where `words` says: device (throws Error if that is impossible: ENOTSUP, ENOMEM), host, or automatic:
  /// on the device if possible.
  TableMemory(std::shared_ptr<Platform> platform, std::uint32_t sockets_max, bool has_device_side,
              RingPlacement words = RingPlacement::host);
  ~TableMemory();
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  table::TableView view(SideKind side) const;
  /// The proxy's halves of the queues: of a caller side's free sockets, and of a listener's accepted connections.
  ringbuf::HandleProducer<> free_queue(SideKind side) const;
  ringbuf::HandleProducer<> accept_queue(std::uint32_t which) const;
  /// Ends every call on the table with -ECANCELED. Any thread may call it. It needs no help from the proxy, which may
  /// stand still. If kernels poll their device's memory, this writes only the word `abort` there: only the proxy
  /// writes statuses there, because if two threads write different values of one word, neither knows which one comes
  /// last.
  void cancel();
  /// The same in a process that was just forked, for calls of its host threads. The device's words belong to the
  /// parent.
  void cancel_copy();

  /// The address at which the host writes `polled` for kernels, which poll it in their device's memory; nullptr if they
  /// poll it in host memory. `polled` is an address from view(SideKind::host) or a SocketSetup.
  template <class T>
  T* bar_address(T* polled) const {
    return window_ == nullptr ? nullptr : moved(polled, window_->mapping());
  }
  /// The same for a word of this slot; also nullptr if only host threads use the slot.
  std::uint64_t* bar_address_for(std::uint32_t slot, std::uint64_t* word) const {
    return slot < sockets_max_ ? nullptr : bar_address(word);
  }
  /// The address at which kernels poll `polled`.
  template <class T>
  T* for_kernels(T* polled) const {
    T* const on_device = window_ == nullptr ? nullptr : moved(polled, window_->device());
    return on_device != nullptr ? on_device : polled;
  }
  bool has_device_words() const { return window_ != nullptr; }
  /// Why kernels poll host memory; empty if they do not, or if that was chosen.
  const std::string& why_no_device_words() const { return why_no_device_words_; }

  bool has_device_side() const { return has_device_side_; }
  std::uint32_t sockets_max() const { return sockets_max_; }
  std::uint32_t slots() const { return slots_; }
  /// Number of poll sets of both caller sides.
  std::uint32_t sets() const { return sets_.count; }
  /// The poll sets as this caller side reaches them. `callers`: its own state of all sets.
  table::PollSetView sets(SideKind side, table::CallerSet* callers) const;
  /// Which caller side's listeners use an accept queue.
  SideKind consumers_of(std::uint32_t accept_queue) const {
    return has_device_side_ && accept_queue >= table::kListenersMax / 2 ? SideKind::device : SideKind::host;
  }
  /// The first slot of a pool.
  std::uint32_t opened_by(SideKind side) const { return side == SideKind::host ? 0 : sockets_max_; }
  std::uint32_t accepted() const { return slots_ - sockets_max_; }

 private:
  /// The same word in the memory at `to`; nullptr if callers do not poll it.
  template <class T>
  T* moved(T* polled, std::byte* to) const {
    const auto at = reinterpret_cast<std::uintptr_t>(polled) - reinterpret_cast<std::uintptr_t>(memory_ + polled_at_);
    return at < bytes_ - polled_at_ ? reinterpret_cast<T*>(to + at) : nullptr;
  }
  void open_window(RingPlacement words);
  ringbuf::HandleProducer<> producer(std::uint64_t* entries, std::uint64_t capacity, std::uint64_t* published,
                                     SideKind consumers) const;

  struct FreeQueue {
    std::uint64_t* entries = nullptr;
    std::uint64_t* published = nullptr;
  };

  std::shared_ptr<Platform> platform_;
  std::uint32_t sockets_max_;
  bool has_device_side_;
  std::uint32_t slots_;
  std::uint64_t free_capacity_;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::size_t polled_at_ = 0;  ///< where the part begins that the proxy writes and callers poll
  std::unique_ptr<DeviceWindow> window_;
  std::string why_no_device_words_;
  table::TableView common_;
  table::PollSetView sets_;
  std::array<FreeQueue, 2> free_;
  std::uint64_t* abort_ = nullptr;
};

}  // namespace gpusock::proxy
