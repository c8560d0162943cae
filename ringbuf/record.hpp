#pragma once
/// @file How records lie in a byte ring: each in one piece, after a header.
///
/// A record is a header of one 64-bit word and its bytes. It takes a multiple of 8 bytes of the ring, its span, and
/// does not pass the ring's end. A filler is a header without a record. It takes the space that is left at the ring's
/// end, and space that a sender has given up before other records. A sender commits a filler only together with a
/// record after it. Both ends of a connection have rings of the same capacity, so a record in one piece at the sender
/// is in one piece at the receiver.
///
///   bit 0..31    bytes of the record; kFiller: there is none
///   bit 32..63   span: bytes from this header to the next
///
/// Headers come from a peer that is not trusted: fits() says whether one is valid.

#include "ringbuf/annotations.hpp"
#include "ringbuf/byte_ring.hpp"

#include <cstdint>

namespace gpusock::ringbuf {

inline constexpr std::uint64_t kRecordHeaderBytes = 8;

struct RecordHeader {
  static constexpr std::uint32_t kFiller = ~std::uint32_t{0};

  std::uint32_t bytes = 0;
  std::uint32_t span = 0;

  GPUSOCK_FN constexpr std::uint64_t pack() const { return std::uint64_t{span} << 32 | bytes; }
  GPUSOCK_FN static constexpr RecordHeader unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }
  GPUSOCK_FN constexpr bool is_filler() const { return bytes == kFiller; }

  /// True if this header is valid where `to_end` bytes are left before the ring's end. An empty record is not: it would
  /// look like the stream's end.
  GPUSOCK_FN constexpr bool fits(std::uint64_t to_end) const {
    const bool content_ok = is_filler() || (bytes != 0 && bytes <= span - kRecordHeaderBytes);
    return span >= kRecordHeaderBytes && span % 8 == 0 && span <= to_end && content_ok;
  }
};

/// Bytes of the ring that a record of `bytes` bytes takes.
GPUSOCK_FN constexpr std::uint64_t record_span(std::uint64_t bytes) { return (kRecordHeaderBytes + bytes + 7) / 8 * 8; }

/// Bytes of the longest record in a ring: it must fit after a filler that is as long as itself.
GPUSOCK_FN constexpr std::uint64_t record_bytes_max(std::uint64_t capacity) {
  return capacity / 2 - kRecordHeaderBytes;
}

/// The header's word at this position, which is a multiple of 8 from the ring's origin.
GPUSOCK_FN inline std::uint64_t* header_at(const RingMemory& memory, std::uint64_t position) {
  return reinterpret_cast<std::uint64_t*>(memory.data + memory.index_of(position));
}

}  // namespace gpusock::ringbuf
