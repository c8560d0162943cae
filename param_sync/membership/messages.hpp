#pragma once
/// @file The messages of members, their form as bytes, and the checks of what arrives.

#include "param_sync/membership/ids.hpp"

#include "gpusock/endpoint.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace param_sync::membership {

/// Most proposals of which a rank does not know whether they are decided: one of each coordinator.
inline constexpr std::size_t kUndecidedMax = kIdsMax;

inline constexpr std::uint32_t kNobody = kIdsMax;

inline constexpr std::size_t kWordsMax = 16;  ///< of the settings of a node that asks to join

/// Where a rank can be reached.
struct Addresses {
  gpusock::ResolvedEndpoint meets;    ///< by members, always
  gpusock::ResolvedEndpoint listens;  ///< by its group, in one view

  friend bool operator==(const Addresses&, const Addresses&) = default;
};

enum class Kind : std::uint32_t {
  hello,     ///< the first message of a connection: a caller's state. A coordinator greets members that it misses
  welcome,   ///< the coordinator waits for others
  proposal,  ///< the next view may be this one
  ack,       ///< the caller remembers the proposal, until it knows what became of it
  commit,    ///< all members have acknowledged: the view is decided
  fenced,    ///< the others have gone on without the caller
  redirect,  ///< call `candidate` instead; kNobody: the next member
  join,      ///< a node that is no member asks a member to be let in
  noted,     ///< the member will ask the others
  refused,   ///< the member will not: see Refusal
  admitted,  ///< the node is the member `candidate` of the view
};
inline constexpr std::uint32_t kKinds = 11;

/// Why a node may not join: Message::words of a refusal.
struct Refusal {
  enum class Why : std::uint64_t { closed, settings, full };
  Why why = Why::closed;
  std::uint64_t setting = 0;  ///< which one differs
  std::uint64_t theirs = 0;   ///< the member's
};

struct Message {
  Kind kind = Kind::hello;
  int from = 0;
  Outline view{};             ///< hello: the newest view that the sender knows to be decided; else the one it is about
  Outline base{};             ///< proposal: the newest view that any member of the proposal knows to be decided
  std::uint64_t highest = 0;  ///< hello: the greatest number that the sender has proposed or acknowledged
  int ids = 0;                ///< hello, proposal, admitted: ids below it were given, and are not given again
  std::uint32_t candidate = 0;       ///< redirect, admitted
  Ids unreached = 0;                 ///< hello: to these members the sender's group could not connect
  std::vector<Outline> undecided{};  ///< hello: newer proposals that the sender has acknowledged: may be decided
  /// hello: the sender's, then those of nodes that have asked it to join; join: the sender's; proposal, admitted: those
  /// of all members, by rank
  std::vector<Addresses> addresses{};
  /// join: the settings; refused: see Refusal; admitted: the run
  std::array<std::uint64_t, kWordsMax> words{};
};

/// A message as bytes. All ranks of a run have the same byte order (docs/many_hosts.md).
struct Packet {
  std::uint64_t magic = 0;
  std::uint64_t run = 0;  ///< the hash of the first view: ranks of another run are refused. 0: it is about joining
  std::uint32_t kind = 0;
  std::uint32_t from = 0;
  Outline view;
  Outline base;
  std::uint64_t highest = 0;
  std::uint32_t candidate = 0;
  std::uint32_t undecided_count = 0;
  std::uint32_t ids = 0;
  std::uint32_t addresses_count = 0;
  Ids unreached = 0;
  Outline undecided[kUndecidedMax];
  Addresses addresses[kIdsMax];
  std::uint64_t words[kWordsMax];
};

inline constexpr std::uint64_t kPacketMagic = 0x33626d656d737067;  // "gpsmemb3"

/// True for messages between a node that asks to join and a member: the node does not know the run.
constexpr bool is_about_joining(Kind kind) { return kind >= Kind::join; }

inline Packet pack(const Message& message, std::uint64_t run) {
  Packet packet;
  packet.magic = kPacketMagic;
  packet.run = is_about_joining(message.kind) ? 0 : run;
  packet.kind = static_cast<std::uint32_t>(message.kind);
  packet.from = static_cast<std::uint32_t>(message.from);
  packet.view = message.view;
  packet.base = message.base;
  packet.highest = message.highest;
  packet.candidate = message.candidate;
  packet.undecided_count = static_cast<std::uint32_t>(std::min(message.undecided.size(), kUndecidedMax));
  std::copy_n(message.undecided.begin(), packet.undecided_count, packet.undecided);
  packet.ids = static_cast<std::uint32_t>(message.ids);
  packet.unreached = message.unreached;
  packet.addresses_count = static_cast<std::uint32_t>(std::min<std::size_t>(message.addresses.size(), kIdsMax));
  std::copy_n(message.addresses.begin(), packet.addresses_count, packet.addresses);
  std::copy(message.words.begin(), message.words.end(), packet.words);
  return packet;
}

/// True if the outline may be of a view.
inline bool is_outline(const Outline& outline) {
  return outline.number != 0 && outline.number <= kNumberMax && outline.members != 0;
}

inline bool is_address(const gpusock::ResolvedEndpoint& at) {
  return (at.family == 4 || at.family == 6) && at.port != 0;
}

/// True if the proposal may follow its base: the nodes that join have new ids, and are not more than those that were
/// there.
inline bool follows_base(const Message& proposal) {
  const Ids members = proposal.view.members, before = proposal.base.members, joined = members & ~before;
  if (id_after(members) > proposal.ids || id_after(before) > proposal.ids) return false;
  return joined == 0 || (lowest(joined) >= id_after(before) && count(joined) <= count(members & before));
}

/// True if the fields of the message are those of its kind, with addresses.
inline bool is_sound(const Message& message) {
  const Outline& view = message.view;
  const bool has_view = is_outline(view), is_member = has(view.members, message.from);
  const std::size_t addresses = message.addresses.size();
  switch (message.kind) {
    case Kind::hello:
      return has_view && is_member && addresses >= 1 && id_after(view.members) <= message.ids;
    case Kind::proposal:
      return has_view && is_member && is_outline(message.base) && follows_base(message) &&
             proposer(view.number) == message.from && addresses == static_cast<std::size_t>(count(view.members));
    case Kind::redirect:
      return message.candidate <= kNobody;
    case Kind::join:
      return addresses == 1;
    case Kind::admitted:
      return has_view && has(view.members, static_cast<int>(message.candidate)) &&
             id_after(view.members) <= message.ids && addresses == static_cast<std::size_t>(count(view.members));
    case Kind::ack:
    case Kind::commit:
    case Kind::fenced:
      return has_view;
    case Kind::welcome:
    case Kind::noted:
    case Kind::refused:
      return true;
  }
  return false;
}

/// Returns the message, or nothing if no rank of this run can have sent it. `run`: 0 for messages about joining.
inline std::optional<Message> unpack(const Packet& packet, std::uint64_t run) {
  if (packet.magic != kPacketMagic || packet.run != run || packet.kind >= kKinds) return std::nullopt;
  if (packet.from >= kIdsMax || packet.candidate > kNobody || packet.highest > kNumberMax) return std::nullopt;
  if (packet.undecided_count > kUndecidedMax || packet.addresses_count > kIdsMax || packet.ids > kIdsMax)
    return std::nullopt;
  Message message;
  message.kind = static_cast<Kind>(packet.kind);
  if (is_about_joining(message.kind) != (run == 0)) return std::nullopt;
  message.from = static_cast<int>(packet.from);
  message.view = packet.view;
  message.base = packet.base;
  message.highest = packet.highest;
  message.candidate = packet.candidate;
  message.ids = static_cast<int>(packet.ids);
  message.unreached = packet.unreached;
  message.undecided.assign(packet.undecided, packet.undecided + packet.undecided_count);
  message.addresses.assign(packet.addresses, packet.addresses + packet.addresses_count);
  std::copy_n(packet.words, kWordsMax, message.words.begin());
  for (const Outline& outline : message.undecided) {
    if (!is_outline(outline)) return std::nullopt;
  }
  for (const Addresses& at : message.addresses) {
    if (!is_address(at.meets) || !is_address(at.listens)) return std::nullopt;
  }
  if (!is_sound(message)) return std::nullopt;
  return message;
}

}  // namespace param_sync::membership
