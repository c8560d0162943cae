#pragma once
/// @file A byte ring between one producer and one consumer, each on any processor that reaches the memory.
///
/// The ring is `capacity` bytes (a power of two) and two words, each with a single writer:
///   committed  bytes ever committed; written by the producer, polled by the consumer
///   consumed   bytes ever released;  written by the consumer, polled by the producer
/// If the words lie in a device's memory, each half may also store a copy of its word in host memory for the proxy. The
/// proxy reads only that copy, and passes no byte on the strength of it. The proxy's own halves also write their
/// word into the device's memory through the host's mapping (bar_write.hpp), and the device polls it there. Both words
/// are monotonic 64-bit *positions* that may start anywhere and wrap. An *index* is a position modulo capacity, counted
/// from the ring's origin. The producer and the consumer are separate halves, so that each lies in its own processor's
/// memory. The two words and the bytes may lie in three different memories. Each half is plain data: copyable, and
/// valid in shared memory.
///
/// Ordering table (scope: system)
///   label  operation                  order    partner  data protected
///   P1     producer: store committed  release  C1       ring bytes before the new position
///   C1     consumer: load committed   acquire  P1, X1   as P1
///   C2     consumer: store consumed   release  P2       the consumer's reads of the bytes it gives back
///   P2     producer: load consumed    acquire  C2, X1   as C2: they precede the producer's overwriting
/// Each half caches the other's position, so it loads the word (P2, C1) only if the cached one does not allow the
/// request.
///
/// A peer that is not trusted may write the words. If the two are more than `capacity` apart, the position is invalid:
/// it is reported as kRingCorrupt and never turned into an address.

#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"
#include "ringbuf/bar_write.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::ringbuf {

/// What writable() and readable() return if the position from the ring's other end is invalid.
inline constexpr std::uint64_t kRingCorrupt = ~std::uint64_t{0};

/// One contiguous run of ring bytes.
struct RingSpan {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// A range of the ring: `second` is empty unless the range passes the end of the ring.
struct RingSpans {
  RingSpan first;
  RingSpan second;
};

/// The ring's memory: bytes and capacity, and how a position becomes an address.
struct RingMemory {
  std::byte* data = nullptr;
  std::uint64_t capacity = 0;  ///< a power of two
  std::uint64_t origin = 0;    ///< a position whose index is 0
  /// True if the words are not set before a connection, because they lie in a device's memory, which the host cannot
  /// set while kernels run. Until a half first stores its word, the word holds a position before the origin, which
  /// stands for the origin.
  std::uint64_t words_are_kept : 1 = 0;
  /// The value of the `committed` word minus its position; 0 unless words_are_kept. A word that an RDMA device writes
  /// may still hold any value of an earlier peer, and no code can reset or read it. So each connection has a new random
  /// bias, which turns an old value into an invalid position. Until the first byte is consumed, an invalid position
  /// stands for the origin.
  std::uint64_t bias : 63 = 0;
  static constexpr std::uint64_t kBiasMax = ~std::uint64_t{0} >> 1;

  GPUSOCK_FN std::uint64_t index_of(std::uint64_t position) const { return (position - origin) & (capacity - 1); }

  /// The position that a word stands for.
  GPUSOCK_FN std::uint64_t position_of(std::uint64_t word) const {
    return words_are_kept && static_cast<std::int64_t>(word - origin) < 0 ? origin : word;
  }
  /// The position that a value of `committed` stands for, for a consumer at position `consumed`.
  GPUSOCK_FN std::uint64_t committed_of(std::uint64_t word, std::uint64_t consumed) const {
    if (!words_are_kept) return word;
    const std::uint64_t position = position_of(word - bias);
    const bool was_left = bias != 0 && consumed == origin && position - origin > capacity;
    return was_left ? origin : position;
  }

  /// The one or two spans of `bytes` bytes from `position` on. `bytes` is at most the capacity.
  GPUSOCK_FN RingSpans spans(std::uint64_t position, std::uint64_t bytes) const {
    const std::uint64_t index = index_of(position);
    const std::uint64_t to_end = capacity - index;
    if (bytes <= to_end) return {{data + index, bytes}, {}};
    return {{data + index, to_end}, {data, bytes - to_end}};
  }
};

/// Loads a half's position, also on other threads of its device. The half's word, which says the same, may lie across a
/// bus.
GPUSOCK_FN inline std::uint64_t load_position(const std::uint64_t& position) {
  // Relaxed, as the store: a moment's guess.
  return DeviceAtomics::Ref<std::uint64_t>(const_cast<std::uint64_t&>(position)).load(kRelaxed);
}
GPUSOCK_FN inline void store_position(std::uint64_t& position, std::uint64_t value) {
  DeviceAtomics::Ref<std::uint64_t>(position).store(value, kRelaxed);
}

/// The copy of the word that a half writes: in host memory, or in a device's through the host's mapping. It fits into
/// one word, because each call of a kernel loads all members of a half.
class WordCopy {
 public:
  WordCopy() = default;
  /// With nullptr there is no copy.
  GPUSOCK_FN WordCopy(std::uint64_t* word, bool is_bar = false)
      : word_(reinterpret_cast<std::uintptr_t>(word) | (word != nullptr && is_bar ? kBarWrite : 0)) {}

  template <class Atomics>
  GPUSOCK_FN void store(std::uint64_t position) const {
    if (word_ == 0) return;
    auto* const word = reinterpret_cast<std::uint64_t*>(word_ & ~kBarWrite);
#if !GPUSOCK_ON_GPU
    if ((word_ & kBarWrite) != 0) return bar_write<Atomics>(word, position);
#endif
    // Relaxed: T1 publishes it to the proxy, or it is for people.
    typename Atomics::template Ref<std::uint64_t>(*word).store(position, kRelaxed);
  }

 private:
  static constexpr std::uintptr_t kBarWrite = 1;  // words are aligned
  std::uintptr_t word_ = 0;
};

/// The producing half. One thread at a time uses it.
template <class Atomics = SystemAtomics>
class ByteProducer {
 public:
  ByteProducer() = default;

  /// A half of the ring at `memory`, whose words both are at `start`. `copy`: the copy of `committed`.
  GPUSOCK_FN ByteProducer(RingMemory memory, std::uint64_t* committed, std::uint64_t* consumed, std::uint64_t start = 0,
                          WordCopy copy = {})
      : memory_(memory),
        committed_(committed),
        consumed_(consumed),
        copy_(copy),
        position_(start),
        consumed_seen_(start) {}

  /// Bytes that may be written now. Loads the consumer's word (P2) only if fewer than `wanted` are known to be free.
  [[nodiscard]] GPUSOCK_FN std::uint64_t writable(std::uint64_t wanted = ~std::uint64_t{0}) {
    std::uint64_t free_bytes = memory_.capacity - (position_ - consumed_seen_);
    if (free_bytes >= wanted || free_bytes == memory_.capacity) return free_bytes;
    typename Atomics::template Ref<std::uint64_t> word(*consumed_);
    const std::uint64_t consumed = memory_.position_of(word.load(kAcquire));  // P2, pairs with C2
    if (position_ - consumed > memory_.capacity) return kRingCorrupt;
    consumed_seen_ = consumed;
    return memory_.capacity - (position_ - consumed);
  }

  /// Bytes that are known to be free, without a look at the consumer's word.
  [[nodiscard]] GPUSOCK_FN std::uint64_t known_writable() const {
    return memory_.capacity - (position_ - consumed_seen_);
  }

  /// The next writable() looks at the consumer's word.
  GPUSOCK_FN void forget_room() { consumed_seen_ = position_ - memory_.capacity; }

  /// Loads the consumer's word (P2), for note_consumed(). Any thread may call it while another one uses this half.
  [[nodiscard]] GPUSOCK_FN std::uint64_t load_consumed() const {
    typename Atomics::template Ref<std::uint64_t> word(*consumed_);
    return memory_.position_of(word.load(kAcquire));  // P2, pairs with C2
  }

  /// Takes note of a value that load_consumed() has returned; false if it is invalid, or older than what is known.
  GPUSOCK_FN bool note_consumed(std::uint64_t consumed) {
    if (consumed - consumed_seen_ > position_ - consumed_seen_) return false;
    consumed_seen_ = consumed;
    return true;
  }

  /// Bytes that could be written now; changes nothing. Other threads of this half's device may call it. While the
  /// producer is at work, the result is a guess of the moment.
  [[nodiscard]] GPUSOCK_FN std::uint64_t writable_at_a_glance() const {
    typename Atomics::template Ref<std::uint64_t> consumed(*consumed_);
    const std::uint64_t end = load_position(position_);
    // Relaxed: nothing is written on its strength.
    const std::uint64_t used = end - memory_.position_of(consumed.load(kRelaxed));
    return used > memory_.capacity ? kRingCorrupt : memory_.capacity - used;
  }

  /// The position; other threads of this half's device may call it, too.
  [[nodiscard]] GPUSOCK_FN std::uint64_t position_at_a_glance() const { return load_position(position_); }

  /// Where the next `bytes` bytes go; `bytes` must not exceed what writable() allowed.
  GPUSOCK_FN RingSpans spans(std::uint64_t bytes) const { return memory_.spans(position_, bytes); }

  /// Publishes the next `bytes` bytes, which have been written.
  GPUSOCK_FN void commit(std::uint64_t bytes) {
    store_position(position_, position_ + bytes);
    typename Atomics::template Ref<std::uint64_t>(*committed_).store(position_, kRelease);  // P1, pairs with C1
    copy_.store<Atomics>(position_);
  }

  GPUSOCK_FN std::uint64_t position() const { return position_; }
  GPUSOCK_FN const RingMemory& memory() const { return memory_; }

 private:
  RingMemory memory_;
  std::uint64_t* committed_ = nullptr;  // this half writes it
  std::uint64_t* consumed_ = nullptr;   // the consumer writes it
  WordCopy copy_;                       // of *committed_
  std::uint64_t position_ = 0;          // == *committed_
  std::uint64_t consumed_seen_ = 0;     // *consumed_ was at least this
};

/// The consuming half. One thread at a time uses it.
template <class Atomics = SystemAtomics>
class ByteConsumer {
 public:
  ByteConsumer() = default;

  /// A half of the ring at `memory`, whose words both are at `start`. `copy`: the copy of `consumed`.
  GPUSOCK_FN ByteConsumer(RingMemory memory, std::uint64_t* committed, std::uint64_t* consumed, std::uint64_t start = 0,
                          WordCopy copy = {})
      : memory_(memory),
        committed_(committed),
        consumed_(consumed),
        copy_(copy),
        position_(start),
        committed_seen_(start) {}

  /// Bytes that may be read now. Loads the producer's word (C1) only if fewer than `wanted` are known to be there.
  [[nodiscard]] GPUSOCK_FN std::uint64_t readable(std::uint64_t wanted = ~std::uint64_t{0}) {
    const std::uint64_t known = committed_seen_ - position_;
    if (known >= wanted || known == memory_.capacity) return known;
    typename Atomics::template Ref<std::uint64_t> word(*committed_);
    const std::uint64_t committed = memory_.committed_of(word.load(kAcquire), position_);  // C1, pairs with P1
    if (committed - position_ > memory_.capacity) return kRingCorrupt;
    committed_seen_ = committed;
    return committed - position_;
  }

  /// Bytes that are known to be there, without a look at the producer's word.
  [[nodiscard]] GPUSOCK_FN std::uint64_t known_readable() const { return committed_seen_ - position_; }

  /// The next readable() looks at the producer's word.
  GPUSOCK_FN void forget_arrived() { committed_seen_ = position_; }

  /// Bytes that could be read now; for the same callers as ByteProducer::writable_at_a_glance().
  [[nodiscard]] GPUSOCK_FN std::uint64_t readable_at_a_glance() const {
    typename Atomics::template Ref<std::uint64_t> committed(*committed_);
    // Relaxed: who reads the bytes looks again (C1).
    const std::uint64_t word = committed.load(kRelaxed);
    const std::uint64_t position = position_at_a_glance();
    const std::uint64_t there = memory_.committed_of(word, position) - position;
    return there > memory_.capacity ? kRingCorrupt : there;
  }

  /// For the same callers: the position, and the producer's position with all bytes before it visible.
  [[nodiscard]] GPUSOCK_FN std::uint64_t position_at_a_glance() const { return load_position(position_); }
  [[nodiscard]] GPUSOCK_FN std::uint64_t load_committed() const {
    typename Atomics::template Ref<std::uint64_t> committed(*committed_);
    const std::uint64_t word = committed.load(kAcquire);  // C1, pairs with P1
    return memory_.committed_of(word, position_at_a_glance());
  }

  /// Where the next `bytes` bytes are; `bytes` must not exceed what readable() allowed.
  GPUSOCK_FN RingSpans spans(std::uint64_t bytes) const { return memory_.spans(position_, bytes); }

  /// Gives the next `bytes` bytes back to the producer; they must not be read any more.
  GPUSOCK_FN void release(std::uint64_t bytes) {
    store_position(position_, position_ + bytes);
    typename Atomics::template Ref<std::uint64_t>(*consumed_).store(position_, kRelease);  // C2, pairs with P2
    copy_.store<Atomics>(position_);
  }

  GPUSOCK_FN std::uint64_t position() const { return position_; }
  GPUSOCK_FN const RingMemory& memory() const { return memory_; }

 private:
  RingMemory memory_;
  std::uint64_t* committed_ = nullptr;  // the producer writes it
  std::uint64_t* consumed_ = nullptr;   // this half writes it
  WordCopy copy_;                       // of *consumed_
  std::uint64_t position_ = 0;          // == *consumed_
  std::uint64_t committed_seen_ = 0;    // *committed_ was at least this
};

}  // namespace gpusock::ringbuf
