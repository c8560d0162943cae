#pragma once
/// @file Copies memory by words, whatever the alignments of the two memories. A message of odd length leaves a ring's
/// position odd; later copies must not become copies of single bytes because of that.

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace gpusock::detail {

/// The largest piece that one access moves: 16 bytes.
struct alignas(16) [[gnu::may_alias]] CopyWord {
  std::uint32_t part[4];
};

/// How a copy is divided: its middle is moved by words, the bytes before and after that one by one.
struct CopyPlan {
  std::uint64_t head = 0;   ///< bytes before the first word
  std::uint64_t words = 0;  ///< number of CopyWords; they are aligned at the destination
  unsigned skew = 0;        ///< distance of the first word's source from the multiple of 4 below it, in bytes
  bool aligned = false;     ///< true if the words are also aligned at the source
};

GPUSOCK_FN inline CopyPlan plan_copy(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  constexpr std::uint64_t kWord = sizeof(CopyWord);
  CopyPlan plan;
  plan.head = (0 - to) % kWord;
  plan.skew = static_cast<unsigned>((from + plan.head) % 4);
  plan.aligned = (from + plan.head) % kWord == 0;
  // A skewed word is read by aligned parts of 4 bytes. The first and last part hold other bytes, too; these must belong
  // to the same copy.
  const std::uint64_t after = plan.skew == 0 ? 0 : 4 - plan.skew;
  if (plan.head < plan.skew) plan.head += kWord;
  if (bytes < plan.head + after + kWord) return {bytes};
  plan.words = (bytes - plan.head - after) / kWord;
  return plan;
}

/// Loads a word as four or five aligned parts of 4 bytes.
GPUSOCK_FN inline CopyWord load_skewed(const unsigned char* from, unsigned skew) {
  using Part [[gnu::may_alias]] = std::uint32_t;
  const auto* parts = reinterpret_cast<const Part*>(from - skew);
  CopyWord word;
  if (skew == 0) {
    for (int i = 0; i < 4; ++i) word.part[i] = parts[i];
    return word;
  }
  std::uint32_t low = parts[0];
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t high = parts[i + 1];
    word.part[i] = low >> (8 * skew) | high << (32 - 8 * skew);  // little-endian, as GPUs and their hosts are
    low = high;
  }
  return word;
}

/// Copies the share of thread `rank` of `size` threads. It has no barrier.
GPUSOCK_FN inline void copy_by_words(std::uint64_t rank, std::uint64_t size, unsigned char* to,
                                     const unsigned char* from, std::uint64_t bytes) {
  constexpr int kAtOnce = 2;  // loads before the first store: loads over the bus are slow; more need more registers
  const CopyPlan plan = plan_copy(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from), bytes);
  for (std::uint64_t i = rank; i < plan.head; i += size) to[i] = from[i];
  auto* out = reinterpret_cast<CopyWord*>(to + plan.head);
  const unsigned char* in = from + plan.head;
  for (std::uint64_t first = rank; first < plan.words; first += size * kAtOnce) {
    CopyWord words[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      const std::uint64_t at = first + i * size;
      if (at >= plan.words) continue;
      words[i] = plan.aligned ? reinterpret_cast<const CopyWord*>(in)[at]
                              : load_skewed(in + at * sizeof(CopyWord), plan.skew);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      const std::uint64_t at = first + i * size;
      if (at < plan.words) out[at] = words[i];
    }
  }
  for (std::uint64_t i = plan.head + plan.words * sizeof(CopyWord) + rank; i < bytes; i += size) to[i] = from[i];
}

}  // namespace gpusock::detail
