#pragma once
/// @file The messages by which two gpusock peers agree on a link. Fixed layouts, little-endian, no padding.
///
// clang-format off
///   connector                       acceptor
///   Hello                  ─────▶                        its version, links and features; a nonce
///                          ◀─────  Reply                 the links and features that both have; a nonce, a proof
///   Confirm                ─────▶                        a proof
///                          ◀─────  NegotiationMessage    offers the best link (kOffer): where its memory is, and so on
///   NegotiationMessage     ─────▶                        takes it (kAnswer), or says why not (kRefusal): then the
///                                                        acceptor offers the next one
///                          ◀─────  NegotiationMessage    the connection is made (kReady), or no link is left (kNone)
// clang-format on
///
/// A proof is the HMAC-SHA256 of the side's name and of all messages of both sides so far. Its key is the shared
/// secret. (Without a secret the key is empty; a proof then only shows that both sides read the same messages.) Every
/// message after Hello ends with a proof, so that no program in between can make a peer refuse a link. Nonces are
/// fresh, so that a recorded handshake is of no use. The acceptor gives no memory to a connector before the connector's
/// first proof. A side that finds an error names it in `error` and closes.

#include "plain_types/endpoint.hpp"

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
  std::uint32_t record_ring_bytes = 0;  ///< records: the largest rings that this side makes itself
  std::uint64_t features = 0;           ///< none yet; a side uses what both have
  Nonce nonce{};
};

struct Reply {
  std::array<char, 8> magic = kMagic;
  std::uint16_t links = 0;              ///< the links of Hello that may be offered
  std::uint16_t error = 0;              ///< an errno: why there will be no connection
  std::uint32_t record_ring_bytes = 0;  ///< records: capacity of rings that each side makes itself; at most Hello's
  std::uint64_t features = 0;           ///< the features of Hello that both have
  Nonce nonce{};
  Proof proof{};
};

struct Confirm {
  std::array<char, 8> magic = kMagic;
  std::uint16_t error = 0;
  std::uint16_t reserved[3] = {};
  Proof proof{};
};

/// One message about links; `bytes` bytes of its payload and a Proof follow.
struct NegotiationMessage {
  enum Kind : std::uint16_t {
    kOffer,    ///< acceptor: offers this link; the payload is the link's
    kAnswer,   ///< connector: takes this link; the payload is the link's
    kRefusal,  ///< either: not this link; the payload says why as a text, `error` is an errno
    kReady,    ///< acceptor: the connection is made
    kNone,     ///< acceptor: no link is left; `error` is an errno
  };
  std::array<char, 8> magic = kMagic;
  std::uint16_t kind = kNone;
  std::uint16_t link = 0;  ///< exactly one bit
  std::uint16_t error = 0;
  std::uint16_t bytes = 0;  ///< at most kLinkMessageBytesMax
};

static_assert(sizeof(Hello) == 56 && sizeof(Reply) == 88 && sizeof(Confirm) == 48 && sizeof(NegotiationMessage) == 16);

}  // namespace gpusock::proxy
