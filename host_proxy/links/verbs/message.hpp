#pragma once
/// @file The message that each end of a verbs link sends to the other in the handshake.

#include "host_proxy/memory/segment_header.hpp"
#include "rdma/queue_pair.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gpusock::proxy::verbs {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

/// What a peer's NIC may write of a segment's header (memory/segment_header.hpp), from its start on. Credit counts from
/// the connection's first byte; the position of arrived bytes counts as the receiver's callers do (setup_words()).
inline constexpr std::uint64_t kArrivedAt = offsetof(SegmentHeader, rx_committed);
inline constexpr std::uint64_t kCreditAt = offsetof(SegmentHeader, tx_consumed);
inline constexpr std::uint64_t kWordsBytes = offsetof(SegmentHeader, rx_consumed);
static_assert(kArrivedAt == 0);

/// The memory of one side that the other side may write.
struct PeerMemory {
  std::uint64_t ring_address = 0;
  std::uint64_t ring_bytes = 0;     ///< a power of two
  std::uint64_t words_address = 0;  ///< of the words that the other side writes
  std::uint32_t ring_key = 0;
  std::uint32_t words_key = 0;
  /// A second word for the position, in the memory of this side's GPU, for kernels. It must be written after the bytes
  /// and before the other word.
  std::uint64_t kernels_word_address = 0;
  std::uint64_t kernels_word_bias = 0;  ///< is added to the position
  std::uint32_t kernels_word_key = 0;
  std::uint32_t has_kernels_word = 0;  ///< 1; or 0: there is none, and the three above are 0
};

/// 88 bytes, little-endian, no padding.
struct Message {
  static constexpr std::uint32_t kVersion = 4;

  std::uint32_t version = kVersion;
  std::uint32_t pair_number = 0;  ///< 24 bits
  std::uint32_t psn = 0;          ///< 24 bits
  std::uint16_t lid = 0;          ///< InfiniBand
  std::uint8_t mtu = 0;           ///< ibv_mtu: 1 to 5
  std::uint8_t ethernet = 0;      ///< 1: RoCE v2, 0: InfiniBand
  std::array<std::uint8_t, 16> gid{};
  PeerMemory memory;  ///< which the receiver of this message writes
};
static_assert(sizeof(Message) == 88 && offsetof(Message, gid) == 16 && offsetof(Message, memory) == 32 &&
              offsetof(PeerMemory, words_key) == 28 && offsetof(PeerMemory, has_kernels_word) == 52);

struct Peer {
  rdma::QueuePairAddress pair;
  PeerMemory memory;
};

Message make_message(const rdma::QueuePairAddress& pair, const PeerMemory& memory);

/// Parses a peer's message. If it is invalid, sets `reason` and returns nothing. `ring_bytes`: its ring's size; 0: any.
std::optional<Peer> parse_message(std::span<const std::byte> bytes, std::uint64_t ring_bytes, std::string& reason);

}  // namespace gpusock::proxy::verbs
