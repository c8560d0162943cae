#pragma once
/// @file What two fabric links say to each other. Fixed sizes, little-endian, no padding.

#include "host_proxy/memory/segment_header.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpusock::proxy::fabric {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

inline constexpr std::uint32_t kConnectionsMax = 1u << 12;  ///< of one pair of endpoints
inline constexpr std::uint32_t kWindow = 16;                ///< sequence numbers
inline constexpr std::uint32_t kChunksMax = kWindow - 1;  ///< on the way at most: so that none is taken for one before
                                                          ///< it
inline constexpr std::uint64_t kChunkBytesMax = 65472;    ///< 16 bits' worth, and whole cache lines

/// Completion data: the receiver's index of the connection (12 bits), sequence number (4), bytes (16; 0: a credit). 32
/// bits, which every fabric carries that carries any: there is one layout and not one per fabric.
struct CompletionData {
  std::uint32_t index = 0;
  std::uint32_t sequence = 0;
  std::uint32_t bytes = 0;

  constexpr std::uint32_t pack() const { return index << 20 | sequence << 16 | bytes; }
  static constexpr CompletionData unpack(std::uint64_t data) {
    const auto word = static_cast<std::uint32_t>(data);
    return {word >> 20, word >> 16 & (kWindow - 1), word & 0xffff};
  }
};

/// What a receiver writes into the sender's memory.
using Credit = SegmentHeader::Credit;
static_assert(sizeof(Credit) == 16);

using Identity = std::array<std::uint8_t, 16>;
using ProviderName = std::array<char, 24>;

/// One side's memory and endpoint. At `memory_address` lies the side's Credit, and its ring right after it.
struct Grant {
  std::uint16_t index = 0;  ///< this side's, of the connection
  std::uint16_t address_bytes = 0;
  std::uint32_t reserved = 0;
  std::uint64_t ring_bytes = 0;
  std::uint64_t memory_address = 0;
  std::uint64_t memory_key = 0;
  std::array<std::byte, 256> address{};  ///< the endpoint's
};
static_assert(sizeof(Grant) == 288);

inline constexpr std::uint32_t kFabricVersion = 3;
inline constexpr std::size_t kProvidersMax = 8;

/// The acceptor's offer. Its own Grant follows on the control channel: first it must know which endpoint is the
/// connector's.
struct Offer {
  std::uint32_t version = kFabricVersion;
  std::uint32_t providers = 0;
  Identity context{};  ///< the acceptor's context: with its address, what a connector knows an endpoint's peer by
  Identity host{};     ///< equal for processes that can share memory
  std::array<ProviderName, kProvidersMax> names{};
};
static_assert(sizeof(Offer) == 232);

/// The connector's answer.
struct Answer {
  ProviderName provider{};
  Identity pair{};  ///< the connector's secret with this acceptor: what the acceptor knows an endpoint's peer by
  Grant grant;
};
static_assert(sizeof(Answer) == 328);

}  // namespace gpusock::proxy::fabric
