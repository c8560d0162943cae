#pragma once
/// @file The channels and buffers of other ranks that plans of MSCCL++ use, and the numbers by which their thread
/// blocks call them.

#include "foreign/plan.hpp"
#include "param_sync/schedule/json_node.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace param_sync::foreign {

/// What a channel goes through. A multicast is a switch that reads or writes the memory of several ranks.
enum class Link : std::uint8_t { memory, port, multicast };
inline constexpr std::size_t kLinks = 3;

/// The channels and remote buffers of a rank.
struct RankChannels {
  struct Channel {
    int peer = 0;
    int ordinal = 0;  ///< of the channels to this peer
  };
  struct Group {
    Buffer buffer = Buffer::input;
    std::vector<int> ranks;
  };
  std::array<std::vector<Channel>, 2> channels;  ///< by Link
  std::vector<Group> groups;                     ///< of switches
  std::vector<Place> remote;                     ///< buffers of other ranks
};

/// What a thread block calls by small numbers.
struct BlockNames {
  std::array<std::vector<int>, kLinks> channels;  ///< by Link: numbers of the rank's channels, or groups
  std::array<std::vector<int>, 2> remote;         ///< by Link: numbers of RankChannels::remote
};

/// Reads the name of a link, or of a buffer. Throws Error.
Link read_link(const schedule::JsonNode& node);
Buffer read_buffer(const schedule::JsonNode& node);

/// A number below `size`. Throws Error.
int read_below(const schedule::JsonNode& node, std::size_t size);

/// Reads what a rank, one of `ranks`, has. Throws Error.
RankChannels read_channels(const schedule::JsonNode& gpu, int rank, int ranks);

/// Reads what a thread block calls by small numbers. Throws Error.
BlockNames read_names(const schedule::JsonNode& block, const RankChannels& rank);

}  // namespace param_sync::foreign
