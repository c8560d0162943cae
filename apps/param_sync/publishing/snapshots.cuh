#pragma once
/// @file Numbers that one kernel replaces while others read them. Readers get a whole version, the newest one, and
/// neither side waits for the other.
///
/// There are several slots. One word says which slot is the newest, and how many read each: so a reader finds the
/// newest slot and counts itself in one step, and no slot becomes free or taken in between.
///   label  operation                        order    partner  data protected
///   N1     word.load (writer)               acquire  N4       the slot's floats: its last reader has ended
///   N2     word.compare_exchange (writer)   release  N3       the slot that becomes the newest
///   N3     word.compare_exchange (reader)   acquire  N2       the same
///   N4     word.fetch_add (reader)          release  N1       that the slot was read

#include "param_sync/executor/wait.cuh"

#include <cstdint>

namespace param_sync {

/// The slots, by value. All pointers point to device memory.
struct Snapshots {
  static constexpr unsigned kSlotsMax = 8;
  static constexpr unsigned kReadersMax = 127;  ///< of a slot at a time

  std::uint64_t* word = nullptr;      ///< 0 at the beginning: slot 0 is the newest one
  float* slots = nullptr;             ///< slot after slot
  std::uint64_t* versions = nullptr;  ///< by slot; only the writer of a slot writes it
  std::uint64_t floats = 0;           ///< of a slot
  unsigned count = 2;                 ///< slots, at most kSlotsMax. With two more than readers, one is always free

  /// The floats of a slot.
  __device__ float* of(int slot) const { return slots + static_cast<std::uint64_t>(slot) * floats; }

  /// Returns a slot that may be written, or -1 if all others than the newest one are read. One thread, the only writer.
  __device__ int begin_write() const {
    const std::uint64_t now = executor::DeviceWord(*word).load(cuda::memory_order_acquire);  // N1, pairs with N4
    for (unsigned slot = 0; slot < count; ++slot) {
      if (slot != newest(now) && readers(now, slot) == 0) return static_cast<int>(slot);
    }
    return -1;
  }

  /// Makes a slot that was written the newest one. One thread, after a barrier of those that wrote it.
  __device__ void publish(int slot) const {
    const executor::DeviceWord shared(*word);
    std::uint64_t before = shared.load(cuda::memory_order_relaxed);  // relaxed: the exchange finds out if it has
                                                                     // changed
    for (bool done = false; !done;) {
      const std::uint64_t after = (before & ~kNewestMask) | static_cast<std::uint64_t>(slot);
      done = shared.compare_exchange_weak(before, after, cuda::memory_order_release,
                                          cuda::memory_order_relaxed);  // N2,
                                                                        // pairs
                                                                        // with
                                                                        // N3
    }
  }

  /// Returns the newest slot, which stays as it is until end_read(). One thread; a barrier, then others may read it.
  __device__ int begin_read() const {
    const executor::DeviceWord shared(*word);
    std::uint64_t before = shared.load(cuda::memory_order_relaxed);  // relaxed: as in publish()
    for (bool done = false; !done;) {
      const std::uint64_t after = before + one_reader(newest(before));
      done = shared.compare_exchange_weak(before, after, cuda::memory_order_acquire,
                                          cuda::memory_order_relaxed);  // N3,
                                                                        // pairs
                                                                        // with
                                                                        // N2
    }
    return static_cast<int>(newest(before));
  }

  /// Gives a slot back. One thread, after a barrier of those that read it.
  __device__ void end_read(int slot) const {
    const std::uint64_t less = 0 - one_reader(static_cast<unsigned>(slot));
    executor::DeviceWord(*word).fetch_add(less, cuda::memory_order_release);  // N4, pairs with N1
  }

 private:
  static constexpr unsigned kNewestBits = 3, kReaderBits = 7;
  static constexpr std::uint64_t kNewestMask = (1 << kNewestBits) - 1;
  static_assert(kSlotsMax == 1u << kNewestBits && kReadersMax == (1u << kReaderBits) - 1 &&
                kNewestBits + kSlotsMax * kReaderBits <= 64);

  __device__ static unsigned newest(std::uint64_t word) { return static_cast<unsigned>(word & kNewestMask); }
  __device__ static unsigned readers(std::uint64_t word, unsigned slot) {
    return static_cast<unsigned>(word >> (kNewestBits + slot * kReaderBits)) & kReadersMax;
  }
  __device__ static std::uint64_t one_reader(unsigned slot) {
    return std::uint64_t{1} << (kNewestBits + slot * kReaderBits);
  }
};

}  // namespace param_sync
