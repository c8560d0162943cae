#pragma once
/// @file FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/): shows whether two nodes have equal data. Not for secrets.

#include <cstddef>
#include <cstdint>

namespace param_sync {

inline constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325u;  ///< the hash of 0 bytes

/// The 64-bit FNV-1a hash of `bytes` bytes, continuing from `hash`.
inline std::uint64_t fnv1a(const void* data, std::size_t bytes, std::uint64_t hash = kFnvBasis) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace param_sync
