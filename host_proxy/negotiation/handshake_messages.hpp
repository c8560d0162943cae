#pragma once
/// @file What two gpusock peers say to agree on a link. Fixed layouts, little-endian, no padding.
///
///   connector                acceptor
///   Hello            ─────▶             version, links and features it has, a nonce
///                    ◀─────  Reply      links and features that both have, a nonce, a proof
///   Confirm          ─────▶             a proof
///                    ◀─────  Turn       offers the best link (kOffer): where its memory is, and the like
///   Turn             ─────▶             takes it (kAnswer), or says why not (kRefusal): then the next one is offered
///                    ◀─────  Turn       the connection stands (kReady), or there is nothing left to offer (kNone)
///
/// Proofs are HMAC-SHA256 over everything said so far, by both sides, and the side's name, under the shared secret
/// (empty where there is none: then they only show that both sides read the same). Every message behind Hello ends with
/// one, so that nobody in between can make a peer refuse a link that it would take. Nonces are fresh, so that nothing
/// can be played again. Nobody gives memory to a connector before its first proof. A side that finds something wrong
/// says why in `error` and closes.

#include "gpusock/endpoint.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace gpusock::proxy {

static_assert(std::endian::native == std::endian::little, "messages are written as they lie in memory");

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

inline constexpr std::array<char, 8> kMagic = {'G', 'P', 'U', 'S', 'O', 'C', 'K', '2'};  ///< the digit is the version

/// A link's bit in `links`.
constexpr std::uint16_t link_bit(LinkKind kind) {
  return static_cast<std::uint16_t>(1u << static_cast<unsigned>(kind));
}

struct Hello {
  std::array<char, 8> magic = kMagic;
  std::uint16_t links = 0;
  std::uint16_t type = 0;               ///< 0: a stream, 1: records
  std::uint32_t record_ring_bytes = 0;  ///< records: the largest rings that this side makes of its own
  std::uint64_t features = 0;           ///< none yet; a side uses what both have
  Nonce nonce{};
};

struct Reply {
  std::array<char, 8> magic = kMagic;
  std::uint16_t links = 0;              ///< what may be offered: of those in Hello
  std::uint16_t error = 0;              ///< an errno: why there will be no connection
  std::uint32_t record_ring_bytes = 0;  ///< records: of both sides' rings where each makes its own; at most Hello's
  std::uint64_t features = 0;           ///< of those in Hello
  Nonce nonce{};
  Proof proof{};
};

struct Confirm {
  std::array<char, 8> magic = kMagic;
  std::uint16_t error = 0;
  std::uint16_t reserved[3] = {};
  Proof proof{};
};

/// `bytes` bytes and a Proof follow.
struct Turn {
  enum Kind : std::uint16_t {
    kOffer,    ///< acceptor: this link; the bytes are its own
    kAnswer,   ///< connector: this link it is; the bytes are its own
    kRefusal,  ///< either: not this link; the bytes are why, in words, and `error` an errno
    kReady,    ///< acceptor: the connection stands
    kNone,     ///< acceptor: no link is left; `error` is an errno
  };
  std::array<char, 8> magic = kMagic;
  std::uint16_t kind = kNone;
  std::uint16_t link = 0;  ///< exactly one bit
  std::uint16_t error = 0;
  std::uint16_t bytes = 0;  ///< kLinkMessageBytesMax at most
};

static_assert(sizeof(Hello) == 56 && sizeof(Reply) == 88 && sizeof(Confirm) == 48 && sizeof(Turn) == 16);

}  // namespace gpusock::proxy
