#pragma once
/// @file The words at the start of a segment that the peer's card writes on the verbs link. Ring 0 receives, ring 1
/// sends.
///
/// One writer per word, the peer's proxy by its card; the reader is beside it. Positions on the wire are counted from
/// the connection's first byte; callers' positions are not, so the receiver says where its own begin (`start`, behind
/// it `open`).
///   word      read by                meaning
///   arrived   callers, proxy         the peer has written ring 0 up to this position of its reader
///   open      proxy                  1: `start` is there, and the peer takes writes
///   start     proxy                  the position in the peer's terms of the first byte that this side sends
///   credit    proxy                  bytes that the peer's callers have consumed of what this side sent

#include "host_proxy/memory/segment.hpp"

#include <cstdint>

namespace gpusock::proxy::verbs {

inline constexpr std::uint64_t kArrivedAt = 0 * ringbuf::kWordStride;
inline constexpr std::uint64_t kOpenAt = 1 * ringbuf::kWordStride;
inline constexpr std::uint64_t kStartAt = 2 * ringbuf::kWordStride;
inline constexpr std::uint64_t kCreditAt = 3 * ringbuf::kWordStride;
/// What the peer's card may write of a segment besides ring 0.
inline constexpr std::uint64_t kWordsBytes = 4 * ringbuf::kWordStride;

struct Words {
  std::uint64_t* arrived;
  std::uint64_t* open;
  std::uint64_t* start;
  std::uint64_t* credit;

  explicit Words(const Segment& segment)
      : arrived(segment.committed(0)),
        open(segment.consumed(0)),
        start(segment.committed(1)),
        credit(segment.consumed(1)) {}
};

}  // namespace gpusock::proxy::verbs
