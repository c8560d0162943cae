#pragma once
/// @file The messages and words that two fabric links exchange. Fixed sizes, little-endian, no padding.

#include "host_proxy/memory/segment_header.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpusock::proxy::fabric {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

inline constexpr std::uint32_t kConnectionsMax = 1u << 12;   ///< between two endpoints
inline constexpr std::uint32_t kWindow = 16;                 ///< how many sequence numbers there are
inline constexpr std::uint32_t kFragmentsMax = kWindow - 1;  ///< unacknowledged at most: none is taken for an older one
inline constexpr std::uint64_t kFragmentBytesMax = 65472;    ///< fits into 16 bits, and is whole cache lines

/// Completion data: the receiver's index of the connection (12 bits), sequence number (4), bytes (16; 0: a credit). All
/// fabrics that carry completion data carry at least these 32 bits, so one layout serves all of them.
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

/// The words that a receiver writes into the sender's memory.
using Credit = SegmentHeader::Credit;
static_assert(sizeof(Credit) == 16);

using Identity = std::array<std::uint8_t, 16>;
using ProviderName = std::array<char, 24>;

/// One side's memory and endpoint. The side's Credit is at `memory_address`, and its ring follows right after it.
struct Grant {
  std::uint16_t index = 0;  ///< this side's index of the connection
  std::uint16_t address_bytes = 0;
  std::uint32_t reserved = 0;
  std::uint64_t ring_bytes = 0;
  std::uint64_t memory_address = 0;
  std::uint64_t memory_key = 0;
  std::array<std::byte, 256> address{};  ///< of the endpoint
};
static_assert(sizeof(Grant) == 288);

inline constexpr std::uint32_t kFabricVersion = 3;
inline constexpr std::size_t kProvidersMax = 8;

/// The acceptor's offer. The acceptor's Grant follows on the control channel: only the answer says which endpoint
/// serves this connector.
struct Offer {
  std::uint32_t version = kFabricVersion;
  std::uint32_t providers = 0;
  Identity context{};  ///< the acceptor's context; a connector knows an endpoint's peer by this and its address
  Identity host{};     ///< equal for processes that can share memory
  std::array<ProviderName, kProvidersMax> names{};
};
static_assert(sizeof(Offer) == 232);

/// The connector's answer.
struct Answer {
  ProviderName provider{};
  Identity pair{};  ///< the connector's secret with this acceptor, which knows an endpoint's peer by it
  Grant grant;
};
static_assert(sizeof(Answer) == 328);

}  // namespace gpusock::proxy::fabric
