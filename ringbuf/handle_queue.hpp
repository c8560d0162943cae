#pragma once
/// @file A queue of socket handles from the proxy (one producer) to any number of device threads.
///
/// Through this queue the proxy grants free sockets and hands over accepted connections. A thread that takes one needs
/// no answer from the proxy. The proxy writes `entries` and `published`. The consumers advance `taken` with
/// compare-and-swap, so it lies in the consumers' own memory (no read-modify-write crosses the bus).
///
/// The producer's user guarantees that at most `capacity` handles are outstanding (published and not yet known to be
/// taken): a taken handle comes back to the proxy as a request on its socket. So an entry is overwritten only after it
/// was taken, or after the proxy has taken its handle back. In the second case the entry is invalid, and skipped.
///
/// If the consumers poll their own memory, the producer also writes entries and `published` there (bar_write.hpp).
///
// clang-format off
/// Ordering table
///   label  operation                         scope   order             partner data protected
///   Q1     proxy: store published            system  release           Q2      entries before the new position, and
///                                                                              what the proxy prepared for them
///   Q2     consumer: load published          system  acquire           Q1      as Q1
///   Q3     consumer: load taken              device  acquire           Q4      the `published` the last taker saw:
///                                                                              none sees more taken than published
///   Q4     consumer: compare-and-swap taken  device  release, acquire  Q3, Q4  as Q3; acquire where it fails. A winner
///                                                                              has what it needs from its load of the
///                                                                              value that it replaces
// clang-format on

#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"
#include "ringbuf/bar_write.hpp"

#include <cstdint>

namespace gpusock::ringbuf {

/// Where the producer also writes entries and `published`, in the host's mapping of the consumers' memory (its BAR);
/// nullptr: nowhere.
struct BarQueue {
  std::uint64_t* entries = nullptr;
  std::uint64_t* published = nullptr;
};

/// The proxy's half.
template <class Shared = SystemAtomics>
class HandleProducer {
 public:
  HandleProducer() = default;
  GPUSOCK_FN HandleProducer(std::uint64_t* entries, std::uint64_t capacity, std::uint64_t* published, BarQueue bar = {})
      : entries_(entries), mask_(capacity - 1), published_(published), bar_(bar) {}

  GPUSOCK_FN void push(std::int32_t handle) {
    const std::uint64_t entry = static_cast<std::uint32_t>(handle), at = position_ & mask_;
    typename Shared::template Ref<std::uint64_t>(entries_[at]).store(entry, kRelaxed);       // relaxed: Q1 publishes it
    typename Shared::template Ref<std::uint64_t>(*published_).store(++position_, kRelease);  // Q1, pairs with Q2
#if !GPUSOCK_ON_GPU
    if (bar_.entries == nullptr) return;
    typename Shared::template Ref<std::uint64_t>(bar_.entries[at]).store(entry, kRelaxed);  // relaxed: X1 does
    bar_write<Shared>(bar_.published, position_);
#endif
  }

  std::uint64_t position() const { return position_; }

 private:
  std::uint64_t* entries_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t* published_ = nullptr;
  BarQueue bar_;
  std::uint64_t position_ = 0;
};

/// The consumers' half: plain data, shared by all of them.
template <class Shared = SystemAtomics, class Own = DeviceAtomics>
class HandleConsumer {
 public:
  HandleConsumer() = default;
  GPUSOCK_FN HandleConsumer(std::uint64_t* entries, std::uint64_t capacity, std::uint64_t* published,
                            std::uint64_t* taken)
      : entries_(entries), mask_(capacity - 1), published_(published), taken_(taken) {}

  /// Takes the oldest handle, which no other thread gets, or returns -1 if there is none.
  GPUSOCK_FN std::int32_t try_take() const {
    typename Own::template Ref<std::uint64_t> taken(*taken_);
    std::uint64_t position = taken.load(kAcquire);                                                  // Q3, pairs with Q4
    while (position != typename Shared::template Ref<std::uint64_t>(*published_).load(kAcquire)) {  // Q2
      // Relaxed: Q2 ordered it.
      const auto entry = typename Shared::template Ref<std::uint64_t>(entries_[position & mask_]).load(kRelaxed);
      if (taken.compare_exchange_weak(position, position + 1, kRelease, kAcquire)) {  // Q4, pairs with Q3
        return static_cast<std::int32_t>(entry);
      }
    }
    return -1;
  }

  /// Drops all handles before the producer's position `end`. No other consumer may use the queue until it returns.
  GPUSOCK_FN void skip_to(std::uint64_t end) const {
    typename Own::template Ref<std::uint64_t>(*taken_).store(end, kRelaxed);  // relaxed: see above
  }

  /// True if there is no handle to take.
  GPUSOCK_FN bool empty() const {
    // Relaxed: a caller that then takes a handle looks again (Q2).
    const auto published = typename Shared::template Ref<std::uint64_t>(*published_).load(kRelaxed);
    return typename Own::template Ref<std::uint64_t>(*taken_).load(kRelaxed) == published;  // relaxed: a hint
  }

 private:
  std::uint64_t* entries_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t* published_ = nullptr;
  std::uint64_t* taken_ = nullptr;
};

}  // namespace gpusock::ringbuf
