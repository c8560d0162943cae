#pragma once
/// @file A copy whose stores bypass the caches of the processor that makes it.
///
/// If another processor will read the bytes, and this one will not, they may be quicker to fetch from memory than from
/// this one's cache. They always are if the two share no cache (store_choice.hpp measures it).

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gpusock::ringbuf {

/// True if stream_copy() differs from memcpy on this machine.
#if defined(__SSE2__)
inline constexpr bool kHasStreamingStores = true;
#else
inline constexpr bool kHasStreamingStores = false;
#endif

/// Copies as memcpy does, with non-temporal stores. Any processor sees them before what this thread stores after the
/// call (they are weakly ordered, Intel SDM volume 1, 10.4.6.2, so a fence follows them). Not inlined: it is for many
/// bytes, and for a small buffer compilers would warn of whole lines that do not fit.
[[gnu::noinline]] inline void stream_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t before_line = (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine;
  const std::size_t head = before_line < bytes ? before_line : bytes;
  std::memcpy(out, in, head);
  std::size_t done = head;
  for (; bytes - done >= kLine; done += kLine) {  // whole lines, so that each is written at once
    const auto* source = reinterpret_cast<const __m128i*>(in + done);
    auto* target = reinterpret_cast<__m128i*>(out + done);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(out + done, in + done, bytes - done);
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace gpusock::ringbuf
