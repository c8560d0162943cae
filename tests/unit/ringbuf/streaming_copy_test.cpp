#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>

// Nobody but the processor knows of the order of these: so they are counted here.
namespace gpusock::ringbuf {
static std::uint64_t stores_without_fence = 0, fences = 0;

static void count_stream(__m128i* to, __m128i value) {
  ++stores_without_fence;
  _mm_stream_si128(to, value);
}
static void count_fence() {
  stores_without_fence = 0;
  ++fences;
  _mm_sfence();
}
}  // namespace gpusock::ringbuf

#define _mm_stream_si128 ::gpusock::ringbuf::count_stream
#define _mm_sfence ::gpusock::ringbuf::count_fence
#include "ringbuf/streaming_copy.hpp"
#undef _mm_stream_si128
#undef _mm_sfence
#else
#include "ringbuf/streaming_copy.hpp"
#endif

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

#if defined(__SSE2__)
/// Streaming stores are weakly ordered: no release store (P1) orders them, the fence behind them does.
TEST(StreamCopy, FencesItsStoresBeforeItReturns) {
  alignas(64) unsigned char from[512] = {}, to[512];
  for (std::size_t bytes : {64, 65, 128, 200, 512}) {
    fences = 0;
    stream_copy(to, from, bytes);
    EXPECT_EQ(stores_without_fence, 0u) << bytes;
    EXPECT_EQ(fences, 1u) << bytes;
  }
}
#endif

}  // namespace
}  // namespace gpusock::ringbuf
