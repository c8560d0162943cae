#pragma once
/// @file How pushes and pulls of a store are sent (--codec).

#include "param_sync/codec/wire_format.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace param_sync {

struct StoreCodec {
  WireFormat push = WireFormat::float32;
  WireFormat pull = WireFormat::float32;
  /// Not 0: a push has so large a share of a range's floats, and the others are kept for later pushes.
  double share = 0;
  /// Not 0, instead of a share: a node pushes floats of at most so many bytes a second, with their numbers.
  double bytes_per_s = 0;
  bool takes_random = false;  ///< random floats, and not the largest ones
  bool keeps_others = true;   ///< false: what a push leaves out is lost

  /// True if a push leaves floats out.
  bool chooses() const { return share != 0 || bytes_per_s != 0; }
  /// How many floats of a range are in a push that leaves some out.
  std::uint32_t floats_of_push(std::uint64_t floats) const {
    const auto count = static_cast<std::uint32_t>(share * static_cast<double>(floats));
    return count == 0 ? 1 : count;
  }
  /// Words of 4 bytes that a push of a range takes.
  std::uint64_t words_of_push(std::uint64_t floats) const {
    const std::uint64_t all = codec::words_of(push, floats);
    return share == 0 ? all : std::min(all, 2 * std::uint64_t{floats_of_push(floats)});
  }
};

/// Returns what --codec says: "PUSH" or "PUSH,PULL", of "fp32", "bf16", "fp16" and "int8"; PUSH may be "top:SHARE",
/// "top:RATE/s", "random:SHARE" or "random:RATE/s", too. A RATE is in bytes, such as 500K or 2M (powers of 1024).
/// Throws gpusock::Error (EINVAL).
StoreCodec store_codec_of(std::string_view text);

}  // namespace param_sync
