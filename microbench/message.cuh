#pragma once
/// @file The contents of messages. They show a byte that is wrong, old or misplaced.

#include "round.hpp"

#include <cuda/atomic>

namespace bench {

/// Word `index` of message `number`. No two messages of a round have the same word at the same offset.
GPUSOCK_FN constexpr std::uint64_t message_word(std::uint64_t number, std::uint64_t index) {
  return (number + 1) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
}

/// Writes message `number` with all threads of the group. No barrier.
template <class Group>
GPUSOCK_FN void fill(const Group& group, std::uint64_t* words, std::uint64_t bytes, std::uint64_t number) {
  for (std::uint64_t i = group.thread_rank(); i < words_of(bytes); i += group.num_threads())
    words[i] = message_word(number, i);
}

/// The bits of word `index` that belong to a message of `bytes` bytes.
GPUSOCK_FN constexpr std::uint64_t mask_of(std::uint64_t bytes, std::uint64_t index) {
  const std::uint64_t left = bytes - index * 8;
  return left >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << left * 8) - 1;
}

/// Adds the number of words that differ from message `number` to the account, by all threads of the group. No barrier.
template <class Group>
GPUSOCK_FN void check(const Group& group, const std::uint64_t* words, std::uint64_t bytes, std::uint64_t number,
                      Account& account) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = group.thread_rank(); i < words_of(bytes); i += group.num_threads()) {
    if (((words[i] ^ message_word(number, i)) & mask_of(bytes, i)) != 0) ++wrong;
  }
  if (wrong != 0) {
    // relaxed: a barrier or the kernel's end orders it before it is read
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(account.wrong_words)
        .fetch_add(wrong, cuda::memory_order_relaxed);
  }
}

/// Writes the first and the last word of message `number` into a filled message. One thread calls it.
GPUSOCK_FN inline void stamp(std::uint64_t* words, std::uint64_t bytes, std::uint64_t number) {
  const std::uint64_t last = words_of(bytes) - 1;
  words[0] = message_word(number, 0);
  words[last] = message_word(number, last);
}

/// Checks what stamp() wrote. One thread calls it.
GPUSOCK_FN inline void check_stamp(const std::uint64_t* words, std::uint64_t bytes, std::uint64_t number,
                                   Account& account) {
  const std::uint64_t last = words_of(bytes) - 1;
  const bool first_wrong = ((words[0] ^ message_word(number, 0)) & mask_of(bytes, 0)) != 0;
  const bool last_wrong = ((words[last] ^ message_word(number, last)) & mask_of(bytes, last)) != 0;
  if (first_wrong || last_wrong) ++account.wrong_words;
}

}  // namespace bench
