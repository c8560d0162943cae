#include "ringbuf/streaming_copy.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace gpusock::ringbuf {
namespace {

constexpr unsigned char kUntouched = 0xEE;

/// Copies `bytes` from one offset to another: exactly these bytes arrive, and nothing beside them is written.
void expect_copied(std::size_t bytes, std::size_t from_offset, std::size_t to_offset) {
  alignas(64) unsigned char from[512], to[512];
  std::iota(std::begin(from), std::end(from), static_cast<unsigned char>(bytes + from_offset));
  std::fill(std::begin(to), std::end(to), kUntouched);
  stream_copy(to + to_offset, from + from_offset, bytes);
  for (std::size_t i = 0; i < sizeof to; ++i) {
    const bool inside = i >= to_offset && i < to_offset + bytes;
    ASSERT_EQ(to[i], inside ? from[from_offset + i - to_offset] : kUntouched)
        << i << " of " << bytes << " bytes from " << from_offset << " to " << to_offset;
  }
}

TEST(StreamCopy, CopiesWhatMemcpyWouldWhateverTheAlignment) {
  for (std::size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 200, 256}) {
    for (std::size_t from_offset : {0, 1, 8, 63}) {
      for (std::size_t to_offset : {0, 1, 16, 63, 64}) expect_copied(bytes, from_offset, to_offset);
    }
  }
}

}  // namespace
}  // namespace gpusock::ringbuf
