#pragma once
/// @file A byte ring between one producer and one consumer, each on any processor that reaches the memory.
///
/// The ring is `capacity` bytes (a power of two) and two words, each with a single writer:
///   committed  bytes ever committed; written by the producer, polled by the consumer
///   consumed   bytes ever released;  written by the consumer, polled by the producer
/// Where the words lie in a device's memory, each half may also store its word in host memory for the proxy, which
/// looks at the copy alone and passes no byte on its strength. The proxy's own halves post their word in the device's
/// memory as well, where the device polls it.
/// Both are monotonic 64-bit *positions* that may start anywhere and wrap; an *index* is a position modulo capacity,
/// counted from the ring's origin. The producer and the consumer are separate halves, so that each lives in its own
/// processor's memory, and the two words and the bytes may lie in three different memories. Each half is plain data:
/// copyable, and valid in shared memory.
///
/// Ordering table (scope: system)
///   label  operation                  order    partner  data protected
///   P1     producer: store committed  release  C1       ring bytes before the new position
///   C1     consumer: load committed   acquire  P1, X1   as P1
///   C2     consumer: store consumed   release  P2       the consumer's reads of the bytes it gives back
///   P2     producer: load consumed    acquire  C2, X1   as C2: they precede the producer's overwriting
/// Each half caches the other's position, so P2 and C1 run only when the cached one does not allow the request.
///
/// The words may be written by a peer that is not trusted: a position that cannot be (more than `capacity` apart) is
/// reported as kRingCorrupt and never turned into an address.

#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"
#include "ringbuf/posted_word.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::ringbuf {

/// What writable() and readable() return when the other side's position is impossible.
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
  /// True if nobody sets the words before a connection: until a half first stores its word, it holds a position before
  /// the origin, which stands for the origin. Words in a device's memory, which the host cannot set while kernels run.
  std::uint64_t words_are_kept : 1 = 0;
  /// What the word of `committed` has beyond its position; 0 unless words_are_kept. A word that a network device writes
  /// may hold any value that an earlier peer has left there, which nobody can reset or read. So its bias is random and
  /// new for each connection: what was left is then an impossible position, and until the first byte is consumed an
  /// impossible position stands for the origin.
  std::uint64_t bias : 63 = 0;
  static constexpr std::uint64_t kBiasMax = ~std::uint64_t{0} >> 1;

  GPUSOCK_FN std::uint64_t index_of(std::uint64_t position) const { return (position - origin) & (capacity - 1); }

  /// The position that a word stands for.
  GPUSOCK_FN std::uint64_t position_of(std::uint64_t word) const {
    return words_are_kept && static_cast<std::int64_t>(word - origin) < 0 ? origin : word;
  }
  /// The same, of `committed`, for a consumer at this position.
  GPUSOCK_FN std::uint64_t committed_of(std::uint64_t word, std::uint64_t consumed) const {
    if (!words_are_kept) return word;
    const std::uint64_t position = position_of(word - bias);
    const bool was_left = bias != 0 && consumed == origin && position - origin > capacity;
    return was_left ? origin : position;
  }

  /// The at most two spans of `bytes` bytes from `position` on; `bytes` <= capacity.
  GPUSOCK_FN RingSpans spans(std::uint64_t position, std::uint64_t bytes) const {
    const std::uint64_t index = index_of(position);
    const std::uint64_t to_end = capacity - index;
    if (bytes <= to_end) return {{data + index, bytes}, {}};
    return {{data + index, to_end}, {data, bytes - to_end}};
  }
};

/// A half's position, which other threads of its device may look at. Its word, which says the same, may lie across a
/// bus.
GPUSOCK_FN inline std::uint64_t load_position(const std::uint64_t& position) {
  // Relaxed, as the store: a moment's guess.
  return DeviceAtomics::Ref<std::uint64_t>(const_cast<std::uint64_t&>(position)).load(kRelaxed);
}
GPUSOCK_FN inline void store_position(std::uint64_t& position, std::uint64_t value) {
  DeviceAtomics::Ref<std::uint64_t>(position).store(value, kRelaxed);
}

/// A second place for the word that a half writes: in host memory, or in a device's through the host's mapping. One
/// word, as each call of a kernel loads what a half has.
class WordCopy {
 public:
  WordCopy() = default;
  /// nullptr: there is none.
  GPUSOCK_FN WordCopy(std::uint64_t* word, bool is_posted = false)
      : word_(reinterpret_cast<std::uintptr_t>(word) | (word != nullptr && is_posted ? kPosted : 0)) {}

  template <class Atomics>
  GPUSOCK_FN void store(std::uint64_t position) const {
    if (word_ == 0) return;
    auto* const word = reinterpret_cast<std::uint64_t*>(word_ & ~kPosted);
#if !GPUSOCK_ON_GPU
    if ((word_ & kPosted) != 0) return post<Atomics>(word, position);
#endif
    // Relaxed: T1 publishes it to the proxy, or it is for people.
    typename Atomics::template Ref<std::uint64_t>(*word).store(position, kRelaxed);
  }

 private:
  static constexpr std::uintptr_t kPosted = 1;  // words are aligned
  std::uintptr_t word_ = 0;
};

/// The producing half. One thread at a time.
template <class Atomics = SystemAtomics>
class ByteProducer {
 public:
  ByteProducer() = default;

  /// A ring at `memory` whose words stand at `start` (both of them). `copy`: of `committed`.
  GPUSOCK_FN ByteProducer(RingMemory memory, std::uint64_t* committed, std::uint64_t* consumed, std::uint64_t start = 0,
                          WordCopy copy = {})
      : memory_(memory),
        committed_(committed),
        consumed_(consumed),
        copy_(copy),
        position_(start),
        consumed_seen_(start) {}

  /// Bytes that may be written now. The consumer's word is read (P2) only where fewer than `wanted` are known to be
  /// free.
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

  /// The consumer's word (P2), for note_consumed(): by any thread, while another one uses this half.
  [[nodiscard]] GPUSOCK_FN std::uint64_t load_consumed() const {
    typename Atomics::template Ref<std::uint64_t> word(*consumed_);
    return memory_.position_of(word.load(kAcquire));  // P2, pairs with C2
  }

  /// Takes note of a value that load_consumed() has returned; false if it is impossible, or older than what is known.
  GPUSOCK_FN bool note_consumed(std::uint64_t consumed) {
    if (consumed - consumed_seen_ > position_ - consumed_seen_) return false;
    consumed_seen_ = consumed;
    return true;
  }

  /// Bytes that could be written now, for other threads of this half's device: changes nothing. While the producer is
  /// at work, a moment's guess.
  [[nodiscard]] GPUSOCK_FN std::uint64_t writable_at_a_glance() const {
    typename Atomics::template Ref<std::uint64_t> consumed(*consumed_);
    const std::uint64_t end = load_position(position_);
    // Relaxed: nothing is written on its strength.
    const std::uint64_t used = end - memory_.position_of(consumed.load(kRelaxed));
    return used > memory_.capacity ? kRingCorrupt : memory_.capacity - used;
  }

  /// The position, for the same callers.
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
  std::uint64_t consumed_seen_ = 0;     // a past value of *consumed_
};

/// The consuming half. One thread at a time.
template <class Atomics = SystemAtomics>
class ByteConsumer {
 public:
  ByteConsumer() = default;

  /// A ring at `memory` whose words stand at `start` (both of them). `copy`: of `consumed`.
  GPUSOCK_FN ByteConsumer(RingMemory memory, std::uint64_t* committed, std::uint64_t* consumed, std::uint64_t start = 0,
                          WordCopy copy = {})
      : memory_(memory),
        committed_(committed),
        consumed_(consumed),
        copy_(copy),
        position_(start),
        committed_seen_(start) {}

  /// Bytes that may be read now. The producer's word is read (C1) only where fewer than `wanted` are known to be there.
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

  /// Bytes that could be read now, as ByteProducer::writable_at_a_glance().
  [[nodiscard]] GPUSOCK_FN std::uint64_t readable_at_a_glance() const {
    typename Atomics::template Ref<std::uint64_t> committed(*committed_);
    // Relaxed: who reads the bytes looks again (C1).
    const std::uint64_t word = committed.load(kRelaxed);
    const std::uint64_t position = position_at_a_glance();
    const std::uint64_t there = memory_.committed_of(word, position) - position;
    return there > memory_.capacity ? kRingCorrupt : there;
  }

  /// The position, and the producer's word with all that it says is there, for the same callers.
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
  std::uint64_t committed_seen_ = 0;    // a past value of *committed_
};

}  // namespace gpusock::ringbuf
