#pragma once
/// @file Variables of a block that stay with it when several blocks share one OS thread. `__shared__` variables, which
/// are those of the OS thread, do not.

#include "cpu_device/detail/builtins.hpp"

#include <cstddef>
#include <type_traits>

namespace cpu_device {

namespace detail {

inline constexpr std::size_t kBlockSharedAlignment = 128;

/// Gives one variable a place in the memory that each block has for them, and returns how far it is from the start.
/// Places are never given back.
std::size_t place_in_block(std::size_t bytes, std::size_t alignment) noexcept;
/// How many bytes the places given so far take.
std::size_t bytes_of_places() noexcept;

template <class T, class Tag>
struct PlaceInBlock {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kBlockSharedAlignment);
  static inline const std::size_t offset = place_in_block(sizeof(T), alignof(T) < 16 ? 16 : alignof(T));
};

}  // namespace detail

/// The running block's variable for this Tag, a type that stands at one place of the program. It is uninitialised at
/// the start of a block. Only for threads of a kernel.
template <class T, class Tag>
T& block_shared(Tag) noexcept {
  return *reinterpret_cast<T*>(detail::t_thread->block->shared + detail::PlaceInBlock<T, Tag>::offset);
}

}  // namespace cpu_device
