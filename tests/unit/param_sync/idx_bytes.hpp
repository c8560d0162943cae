#pragma once
/// @file An IDX file's bytes, for tests.

#include <cstdint>
#include <vector>

namespace param_sync::testing {

/// The bytes of an IDX file: unsigned bytes of this shape, then `data`.
inline std::vector<std::uint8_t> idx_bytes(const std::vector<std::uint32_t>& shape,
                                           const std::vector<std::uint8_t>& data) {
  std::vector<std::uint8_t> bytes{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  }
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

}  // namespace param_sync::testing
