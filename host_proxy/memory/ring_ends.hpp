#pragma once
/// @file The proxy's ends of a socket's rings, for a link that needs the bytes where a CPU reaches them: as they lie,
/// where the rings are in host memory; by way of copies (staged_ends.hpp), where they are in a device's.

#include "ringbuf/byte_ring.hpp"

#include <cstdint>

namespace gpusock::proxy {

using ringbuf::kRingCorrupt;

/// Where a link gets the bytes that it transmits. No call waits.
class RingSource {
 public:
  virtual ~RingSource() = default;

  /// Bytes that can be transmitted, or kRingCorrupt. Also takes what goes before that further: copies. `wanted`: would
  /// they be transmitted now.
  virtual std::uint64_t ready(bool wanted) = 0;
  /// Where the next `bytes` bytes are; at most what ready() said.
  virtual ringbuf::RingSpans spans(std::uint64_t bytes) const = 0;
  /// The next `bytes` bytes were handed to the network: gives them back to the callers.
  virtual void release(std::uint64_t bytes) = 0;
  /// No more is transmitted: gives up what others may wait for.
  virtual void stop() {}
  /// Behind the last byte that was released.
  virtual std::uint64_t position() const = 0;

  /// Has everything been released that was committed, as of the last ready().
  virtual bool drained() const = 0;
  /// Is something on its way of which nobody will tell: then ready() must be asked again.
  virtual bool watches() const { return false; }
  /// Did it get further at the last ready(), whether bytes are ready or not.
  virtual bool moved() const { return false; }
  /// Why no more will ever be ready: an errno, or 0.
  virtual int error() const { return 0; }
  /// May bytes go to the network past it, from the callers' own memory.
  virtual bool can_be_passed() const { return false; }
};

/// Where a link puts the bytes that arrive. No call waits.
class RingSink {
 public:
  virtual ~RingSink() = default;

  /// Bytes that can be put now, or kRingCorrupt. Also takes what was put further: copies.
  virtual std::uint64_t room() = 0;
  /// Where the next `bytes` bytes go; at most what room() said.
  virtual ringbuf::RingSpans spans(std::uint64_t bytes) const = 0;
  /// The next `bytes` bytes were put there: they are on their way to the callers.
  virtual void commit(std::uint64_t bytes) = 0;
  /// No more arrives, and what has not reached the callers is not to: gives up what others may wait for.
  virtual void stop() {}
  /// Behind the last byte that callers can have.
  virtual std::uint64_t position() const = 0;

  /// True if bytes were put that callers have not taken.
  virtual bool unread() = 0;
  /// Can callers have all that was put.
  virtual bool drained() const { return true; }
  /// Is the ring itself full, as of the last room(): nothing can be put until callers give space back.
  virtual bool full() const = 0;
  virtual bool watches() const { return false; }  ///< as the source's, with room()
  virtual bool moved() const { return false; }    ///< as the source's, with room()
  virtual int error() const { return 0; }         ///< why there will never be room again: an errno, or 0
  /// May bytes come from the network past it, into the callers' own memory, now.
  virtual bool can_be_passed() { return false; }
};

/// A ring in host memory.
class DirectSource final : public RingSource {
 public:
  explicit DirectSource(ringbuf::ByteConsumer<> ring) : ring_(ring) {}

  std::uint64_t ready(bool) override { return ready_ = ring_.readable(); }
  ringbuf::RingSpans spans(std::uint64_t bytes) const override { return ring_.spans(bytes); }
  void release(std::uint64_t bytes) override { ring_.release(bytes); }
  std::uint64_t position() const override { return ring_.position(); }
  bool drained() const override { return ready_ == 0; }
  bool can_be_passed() const override { return true; }

 private:
  ringbuf::ByteConsumer<> ring_;
  std::uint64_t ready_ = 0;
};

/// A ring in host memory.
class DirectSink final : public RingSink {
 public:
  explicit DirectSink(ringbuf::ByteProducer<> ring) : ring_(ring) {}

  std::uint64_t room() override { return room_ = ring_.writable(); }
  ringbuf::RingSpans spans(std::uint64_t bytes) const override { return ring_.spans(bytes); }
  void commit(std::uint64_t bytes) override { ring_.commit(bytes); }
  std::uint64_t position() const override { return ring_.position(); }
  bool unread() override { return ring_.writable() != ring_.memory().capacity; }
  bool full() const override { return room_ == 0; }
  bool can_be_passed() override { return ring_.writable() == ring_.memory().capacity; }

 private:
  ringbuf::ByteProducer<> ring_;
  std::uint64_t room_ = ~std::uint64_t{0};
};

}  // namespace gpusock::proxy
