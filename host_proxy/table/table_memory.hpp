#pragma once
/// @file Owns the memory of the socket table that callers and proxy share.

#include "plain_types/ring_placement.hpp"
#include "host_proxy/memory/platform.hpp"
#include "socket_table/socket_table.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gpusock::proxy {

/// Who opens sockets: a context's host threads, or its kernels. On the CPU device both are the host side.
enum class SideKind : int { host = 0, device = 1 };

/// What the proxy writes and callers poll is in host memory. Kernels may poll a copy in their device's memory, into
/// which the host posts each change (ringbuf/posted_word.hpp): the *device's words*.
///
/// ProxySlots are in three pools of `sockets_max` each: those that host threads open, those that kernels open, and
/// those of accepted connections. Without a device side its pool is empty.
class TableMemory {
 public:
  /// `words`: where kernels poll: device (throws Error where that cannot be: ENOTSUP, ENOMEM), host, or automatic: on
  /// the device if it can be.
  TableMemory(std::shared_ptr<Platform> platform, std::uint32_t sockets_max, bool has_device_side,
              RingPlacement words = RingPlacement::host);
  ~TableMemory();
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  table::TableView view(SideKind side) const;
  /// The proxy's halves of the queues: of a side's free sockets, and of one that accepts.
  ringbuf::HandleProducer<> free_queue(SideKind side) const;
  ringbuf::HandleProducer<> accept_queue(std::uint32_t which) const;
  /// Ends every call on the table with -ECANCELED. Any thread, and with no help of the proxy's, which may stand still.
  /// Where kernels poll their device's memory, this posts the word `abort` alone: posted statuses are the proxy's, and
  /// two threads that post different values of one word would not know whose comes last.
  void cancel();
  /// The same in a process that was just forked, for its host threads' calls. The device's words are the parent's.
  void cancel_copy();

  /// Where the host posts what kernels poll in their device's memory, of something that view(SideKind::host) or a
  /// SocketSetup names. nullptr: kernels poll it in host memory.
  template <class T>
  T* posted(T* polled) const {
    return window_ == nullptr ? nullptr : moved(polled, window_->mapping());
  }
  /// The same for a word of this slot's; nullptr as well if only host threads use the slot.
  std::uint64_t* posted_for(std::uint32_t slot, std::uint64_t* word) const {
    return slot < sockets_max_ ? nullptr : posted(word);
  }
  /// The same as kernels reach it.
  template <class T>
  T* for_kernels(T* polled) const {
    T* const on_device = window_ == nullptr ? nullptr : moved(polled, window_->device());
    return on_device != nullptr ? on_device : polled;
  }
  bool has_device_words() const { return window_ != nullptr; }
  /// Why kernels poll host memory; empty if they do not, or were told to.
  const std::string& why_no_device_words() const { return why_no_device_words_; }

  bool has_device_side() const { return has_device_side_; }
  std::uint32_t sockets_max() const { return sockets_max_; }
  std::uint32_t slots() const { return slots_; }
  /// Poll sets, of both sides.
  std::uint32_t sets() const { return sets_.count; }
  /// `callers`: that side's own state of all sets.
  table::PollSetView sets(SideKind side, table::CallerSet* callers) const;
  /// Which side's listeners use an accept queue.
  SideKind consumers_of(std::uint32_t accept_queue) const {
    return has_device_side_ && accept_queue >= table::kListenersMax / 2 ? SideKind::device : SideKind::host;
  }
  /// The first slot of a pool.
  std::uint32_t opened_by(SideKind side) const { return side == SideKind::host ? 0 : sockets_max_; }
  std::uint32_t accepted() const { return slots_ - sockets_max_; }

 private:
  /// The same place in other memory; nullptr if callers do not poll it.
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
  std::size_t polled_at_ = 0;  ///< what follows is what the proxy writes and callers poll
  std::unique_ptr<DeviceWindow> window_;
  std::string why_no_device_words_;
  table::TableView common_;
  table::PollSetView sets_;
  std::array<FreeQueue, 2> free_;
  std::uint64_t* abort_ = nullptr;
};

}  // namespace gpusock::proxy
