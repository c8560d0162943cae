#pragma once
/// @file The messages of members, their form as bytes, and the checks of what arrives.

#include "param_sync/membership/ids.hpp"

#include "gpusock/endpoint.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace param_sync::membership {

/// Most proposals of which a rank does not know whether they are decided: one of each coordinator.
inline constexpr std::size_t kUndecidedMax = kIdsMax;

inline constexpr std::uint32_t kNobody = kIdsMax;

enum class Kind : std::uint32_t {
  hello,     ///< the first message of a connection: a caller's state. A coordinator greets members that it misses
  welcome,   ///< the coordinator waits for others
  proposal,  ///< the next view may be this one
  ack,       ///< the caller remembers the proposal, until it knows what became of it
  commit,    ///< all members have acknowledged: the view is decided
  fenced,    ///< the others have gone on without the caller
  redirect,  ///< call `candidate` instead; kNobody: the next member
};
inline constexpr std::uint32_t kKinds = 7;

struct Message {
  Kind kind = Kind::hello;
  int from = 0;
  Outline view{};             ///< hello: the newest view that the sender knows to be decided; else the one it is about
  Outline base{};             ///< proposal: the newest view that any member of the proposal knows to be decided
  std::uint64_t highest = 0;  ///< hello: the greatest number that the sender has proposed or acknowledged
  std::uint32_t candidate = 0;       ///< redirect
  std::vector<Outline> undecided{};  ///< hello: newer proposals that the sender has acknowledged: may be decided
  std::vector<gpusock::ResolvedEndpoint> listens{};  ///< hello: the sender's group; proposal: all groups, by rank
};

/// A message as bytes. All ranks of a run have the same byte order (docs/many_hosts.md).
struct Packet {
  std::uint64_t magic = 0;
  std::uint64_t run = 0;  ///< the hash of the first view: ranks of another run are refused
  std::uint32_t kind = 0;
  std::uint32_t from = 0;
  Outline view;
  Outline base;
  std::uint64_t highest = 0;
  std::uint32_t candidate = 0;
  std::uint32_t undecided_count = 0;
  Outline undecided[kUndecidedMax];
  gpusock::ResolvedEndpoint listens[kIdsMax];
};

inline constexpr std::uint64_t kPacketMagic = 0x31626d656d737067;  // "gpsmemb1"

inline Packet pack(const Message& message, std::uint64_t run) {
  Packet packet;
  packet.magic = kPacketMagic;
  packet.run = run;
  packet.kind = static_cast<std::uint32_t>(message.kind);
  packet.from = static_cast<std::uint32_t>(message.from);
  packet.view = message.view;
  packet.base = message.base;
  packet.highest = message.highest;
  packet.candidate = message.candidate;
  packet.undecided_count = static_cast<std::uint32_t>(std::min(message.undecided.size(), kUndecidedMax));
  std::copy_n(message.undecided.begin(), packet.undecided_count, packet.undecided);
  std::copy_n(message.listens.begin(), std::min<std::size_t>(message.listens.size(), kIdsMax), packet.listens);
  return packet;
}

/// True if the outline may be of a view whose members are among `everyone`.
inline bool is_outline(const Outline& outline, Ids everyone) {
  return outline.number != 0 && outline.number <= kNumberMax && outline.members != 0 &&
         contains(everyone, outline.members);
}

/// Returns the message, or nothing if no rank of this run can have sent it. `everyone`: the members of the first view.
inline std::optional<Message> unpack(const Packet& packet, std::uint64_t run, Ids everyone) {
  if (packet.magic != kPacketMagic || packet.run != run || packet.kind >= kKinds) return std::nullopt;
  if (packet.from >= kIdsMax || !has(everyone, static_cast<int>(packet.from))) return std::nullopt;
  if (packet.undecided_count > kUndecidedMax || packet.highest > kNumberMax) return std::nullopt;
  Message message;
  message.kind = static_cast<Kind>(packet.kind);
  message.from = static_cast<int>(packet.from);
  message.view = packet.view;
  message.base = packet.base;
  message.highest = packet.highest;
  message.candidate = packet.candidate;
  message.undecided.assign(packet.undecided, packet.undecided + packet.undecided_count);
  for (const Outline& outline : message.undecided) {
    if (!is_outline(outline, everyone)) return std::nullopt;
  }
  const bool about_view = message.kind != Kind::welcome && message.kind != Kind::redirect;
  if (about_view && !is_outline(message.view, everyone)) return std::nullopt;
  const bool is_member = has(message.view.members, message.from);
  int addresses = 0;
  switch (message.kind) {
    case Kind::hello:
      if (!is_member) return std::nullopt;
      addresses = 1;
      break;
    case Kind::proposal:
      if (!is_member || !is_outline(message.base, everyone)) return std::nullopt;
      if (!contains(message.base.members, message.view.members)) return std::nullopt;
      if (proposer(message.view.number) != message.from) return std::nullopt;
      addresses = count(message.view.members);
      break;
    case Kind::redirect:
      if (message.candidate > kNobody) return std::nullopt;
      if (message.candidate != kNobody && !has(everyone, static_cast<int>(message.candidate))) return std::nullopt;
      break;
    case Kind::welcome:
    case Kind::ack:
    case Kind::commit:
    case Kind::fenced:
      break;
  }
  for (int i = 0; i < addresses; ++i) {
    const gpusock::ResolvedEndpoint& at = packet.listens[i];
    if ((at.family != 4 && at.family != 6) || at.port == 0) return std::nullopt;
    message.listens.push_back(at);
  }
  return message;
}

}  // namespace param_sync::membership
