#pragma once
/// @file The layout of the file of host rings (host_rings.hpp): a head, the slots, the members (arenas.hpp), and a
/// segment for each slot. Also the numbers of its locks.

#include "host_proxy/memory/arenas.hpp"
#include "host_proxy/memory/host_rings.hpp"

namespace gpusock::proxy {

/// The file's start. It is written before the file has its name, and never again.
struct HostRings::Head {
  static constexpr std::array<char, 16> kMagic = {'g', 'p', 'u', 's', 'o', 'c', 'k', ' ',
                                                  'r', 'i', 'n', 'g', 's', ' ', '2'};
  std::array<char, 16> magic{};
  Id id{};
  std::uint64_t room_bytes = 0;
  std::uint64_t connections = 0;

  /// True if a file of so many bytes may begin with this.
  bool is_of(std::size_t file_bytes) const;
};

/// What the processes tell each other about a slot. Locks order all accesses: a process that takes a slot has both of
/// its locks and then writes; a process that joins has the peer's lock and then reads.
struct HostRings::Slot {
  Id ticket{};
  std::uint64_t maker_uses = 0;      // 1 until the maker gives it back; stays 1 if the maker dies
  std::uint64_t peer_uses = 0;       // the same for the peer
  std::uint64_t joined = 0;          // 1 from when a peer has joined, until the slot is taken again
  std::uint64_t rests_since_ns = 0;  // when the death of a user was first seen; 0: not yet
  std::uint64_t start = 0;           // where the slot's words in arenas start: beyond all that they may hold
  std::byte unused[8] = {};
};

namespace host_rings {

inline constexpr std::size_t kSlotsAt = 64;
inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::size_t kFilePage = 4096;

constexpr std::size_t in_pages(std::size_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }
constexpr std::size_t members_at(std::uint64_t connections) { return in_pages(kSlotsAt + connections * kSlotBytes); }
/// Bytes before the first segment.
inline std::size_t front_bytes(std::uint64_t connections) {
  return members_at(connections) + in_pages(Arenas::table_bytes());
}
inline std::size_t bytes_of_file(std::uint64_t connections, std::uint64_t room_bytes) {
  return front_bytes(connections) + connections * Segment::total_bytes(room_bytes);
}

// A slot has two locks: its maker's, then its peer's.
constexpr std::size_t maker_lock(std::uint32_t slot) { return 2 * std::size_t{slot}; }
constexpr std::size_t peer_lock(std::uint32_t slot) { return maker_lock(slot) + 1; }
/// The arenas' locks come after them: Arenas::locks().
constexpr std::size_t arenas_lock(std::uint32_t connections) { return maker_lock(connections); }

}  // namespace host_rings

inline bool HostRings::Head::is_of(std::size_t file_bytes) const {
  return magic == kMagic && is_count(connections) && is_ring_size(room_bytes) &&
         file_bytes == host_rings::bytes_of_file(connections, room_bytes);
}

}  // namespace gpusock::proxy
