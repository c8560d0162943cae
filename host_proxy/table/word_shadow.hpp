#pragma once
/// @file The callers' words as the proxy last saw them, so that one pass of compares finds what has changed.

#include "socket_table/socket_table.hpp"

#include <cstdint>
#include <vector>

namespace gpusock::proxy {

/// A page is 64 slots: 512 bytes of each array, eight cache lines that a processor fetches in a row.
inline constexpr std::uint32_t kPageSlots = 64;

/// One array of the callers' words, and the values that the proxy last saw there.
class WordShadow {
 public:
  WordShadow(std::uint64_t* words, std::uint32_t count) : words_(words), seen_(count) {}

  /// True if the word has changed since it was last noted. Only a hint: the proxy then reads the word with acquire.
  bool changed(std::uint32_t slot) const { return load(slot) != seen_[slot]; }
  std::uint64_t seen(std::uint32_t slot) const { return seen_[slot]; }
  void note(std::uint32_t slot, std::uint64_t value) { seen_[slot] = value; }
  void note(std::uint32_t slot) { seen_[slot] = load(slot); }

  /// True if any word of [first, last) has changed. No branch for each word, so that the compiler makes it vector code.
  bool any_changed(std::uint32_t first, std::uint32_t last) const {
    std::uint64_t difference = 0;
    for (std::uint32_t slot = first; slot < last; ++slot) difference |= load(slot) ^ seen_[slot];
    return difference != 0;
  }

 private:
  std::uint64_t load(std::uint32_t slot) const {
    return ringbuf::SystemAtomics::Ref<std::uint64_t>(words_[slot]).load(ringbuf::kRelaxed);  // relaxed: only compared
  }

  std::uint64_t* words_;
  std::vector<std::uint64_t> seen_;
};

}  // namespace gpusock::proxy
