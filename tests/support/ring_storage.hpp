#pragma once
/// @file Host memory that owns one byte ring: the two words, each on its own cache lines, and the bytes.

#include "ringbuf/atomics.hpp"
#include "ringbuf/byte_ring.hpp"

#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace gpusock::ringbuf {

/// Owns a ring in ordinary host memory; for several processors of one process. Throws std::invalid_argument unless
/// `capacity` is a power of two.
class RingStorage {
 public:
  explicit RingStorage(std::uint64_t capacity, std::uint64_t start = 0) {
    if (!std::has_single_bit(capacity)) {
      throw std::invalid_argument("a ring's capacity must be a power of two, not " + std::to_string(capacity));
    }
    bytes_.reset(static_cast<std::byte*>(::operator new(2 * kWordStride + capacity, kAlignment)));
    new (word(0)) std::uint64_t(start);
    new (word(1)) std::uint64_t(start);
    memory_ = {bytes_.get() + 2 * kWordStride, capacity};
    start_ = start;
  }

  template <class Atomics = SystemAtomics>
  ByteProducer<Atomics> producer() {
    return {memory_, word(0), word(1), start_};
  }

  template <class Atomics = SystemAtomics>
  ByteConsumer<Atomics> consumer() {
    return {memory_, word(0), word(1), start_};
  }

  std::uint64_t* committed() { return word(0); }
  std::uint64_t* consumed() { return word(1); }

 private:
  static constexpr std::align_val_t kAlignment{kWordStride};
  struct Deleter {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };

  std::uint64_t* word(std::uint64_t which) {
    return reinterpret_cast<std::uint64_t*>(bytes_.get() + which * kWordStride);
  }

  std::unique_ptr<std::byte, Deleter> bytes_;
  RingMemory memory_;
  std::uint64_t start_ = 0;
};

}  // namespace gpusock::ringbuf
