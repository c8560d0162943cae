#pragma once
/// @file What two gpusock peers say to agree on a link. Fixed sizes, little-endian, no padding.
///
///   connector            acceptor
///   Hello        ─────▶             links it has, a nonce
///                ◀─────  Reply      link it offers, where the shared memory is, a nonce, proof of the secret
///   Confirm      ─────▶             link it took, proof of the secret
///                ◀─────  Ready      the connection stands
///
/// The proofs are HMAC-SHA256 over everything said so far, under the shared secret (empty where there is none: then they
/// only show that both sides read the same). A side that finds something wrong says why in `error` and closes.

#include <array>
#include <bit>
#include <cstdint>

namespace gpusock::proxy {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

inline constexpr std::array<char, 8> kMagic = {'G', 'P', 'U', 'S', 'O', 'C', 'K', '1'};

/// Bits of `links`.
enum LinkBits : std::uint16_t { kLinkTcp = 1, kLinkP2p = 2 };

struct Hello {
  std::array<char, 8> magic = kMagic;
  std::uint16_t links = 0;
  std::uint16_t type = 0;               ///< 0: a stream, 1: records
  std::uint32_t record_ring_bytes = 0;  ///< records on tcp: the largest rings that this side makes for them
  Nonce nonce{};
};

struct Reply {
  std::array<char, 8> magic = kMagic;
  std::uint16_t links = 0;   ///< offered, of those in Hello
  std::uint16_t error = 0;   ///< an errno: why there will be no connection
  std::uint32_t record_ring_bytes = 0;  ///< records on tcp: both sides' rings, at most Hello's
  std::uint64_t ring_bytes = 0;         ///< p2p: the shared rings
  std::array<char, 32> shared_name{};  ///< p2p: the abstract Unix socket
  std::array<std::uint8_t, 16> ticket{};
  Nonce nonce{};
  Proof proof{};
};

struct Confirm {
  std::array<char, 8> magic = kMagic;
  std::uint16_t link = 0;    ///< exactly one bit
  std::uint16_t error = 0;
  std::uint32_t reserved = 0;
  Proof proof{};
};

struct Ready {
  std::array<char, 8> magic = kMagic;
  std::uint16_t error = 0;
  std::uint16_t reserved[3] = {};
};

static_assert(sizeof(Hello) == 48 && sizeof(Reply) == 136 && sizeof(Confirm) == 48 && sizeof(Ready) == 16);

}  // namespace gpusock::proxy
