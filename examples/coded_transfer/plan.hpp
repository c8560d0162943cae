#pragma once
/// @file What a sender and a receiver agree on: how a buffer is cut into chunks, and which of them a path carries.

#include "examples/coded_transfer/lt_code.hpp"

#include <gpusock/groups.cuh>

#include <cstdint>

namespace coded {

inline constexpr std::uint32_t kPathsMax = 64;
inline constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30;
inline constexpr std::uint32_t kChunkBytesMin = 64, kChunkBytesMax = 1 << 20, kSourcesMax = 1 << 20;
inline constexpr std::uint32_t kSymbolsMax = 1 << 17;  // chunks with LT: elimination takes seconds of a host then

/// How a transfer is coded. Without LT, chunks form groups: one chunk for each path, of which the last `spare` are
/// coded ones. With LT a path carries symbols without end. Frame f of a path has the number f * paths + path in both
/// cases.
struct Plan {
  std::uint32_t paths, spare, is_lt, chunk_bytes;
  std::uint64_t bytes, seed, checksum;  ///< of the buffer; `seed` is that of the LT code

  GPUSOCK_FN std::uint32_t sources() const {
    return static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
  }
  GPUSOCK_FN std::uint32_t data_paths() const { return paths - spare; }
  GPUSOCK_FN std::uint32_t groups() const { return (sources() + data_paths() - 1) / data_paths(); }
  /// Chunks for which a receiver has memory. LT codes need a few more than sources().
  GPUSOCK_FN std::uint32_t slots() const { return is_lt != 0 ? 2 * sources() + 64 : groups() * paths; }
  /// Where the i-th chunk of the buffer is, in the memory of slots.
  GPUSOCK_FN std::uint32_t slot_of(std::uint32_t i) const { return i / data_paths() * paths + i % data_paths(); }

  /// True for what a program of ours sends: a peer may send anything.
  GPUSOCK_FN bool is_valid() const {
    return paths >= 1 && paths <= kPathsMax && spare < paths && (is_lt == 0 || spare == 0) && bytes >= 1 &&
           bytes <= kBytesMax && chunk_bytes >= kChunkBytesMin && chunk_bytes <= kChunkBytesMax &&
           chunk_bytes % 16 == 0 && (bytes - 1) / chunk_bytes < (is_lt != 0 ? kSymbolsMax : kSourcesMax);
  }
  bool operator==(const Plan&) const = default;
};

/// The first message on each path, from the sender.
struct Hello {
  static constexpr std::uint64_t kMagic = 0x3130'6465'646f'63;  // "coded01"
  std::uint64_t magic;
  std::uint64_t path;
  Plan plan;
};

/// Before each chunk.
struct Frame {
  std::uint64_t number;
};

/// The receiver's only message on each path, and how a transfer ends.
enum class End : std::uint32_t { none = 0, enough = 1, hopeless = 2 };

/// What became of a path at one end.
struct PathReport {
  std::uint64_t bytes;  ///< sent, or taken
  std::int32_t error;   ///< 0, or why the path was lost, as a negated errno
  End end;              ///< at a sender: what the receiver has said
};

/// A checksum of a buffer's whole words.
inline std::uint64_t checksum_of(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sum = count;
  for (std::size_t i = 0; i < count; ++i) sum = mixed(sum ^ words[i]) + i;
  return sum;
}

}  // namespace coded
