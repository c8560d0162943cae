#pragma once
/// @file Zeroed memory, for DeviceBuffer and Mapped. Large pieces are fresh pages of the operating system, which are
/// zero already: they take time and memory only once they are used.

#include <cstddef>

namespace gpusock::detail {

/// Returns zeroed memory, aligned to 256 bytes; nullptr if there is none.
void* allocate_zeroed(std::size_t bytes) noexcept;
/// Frees what allocate_zeroed() returned.
void free_zeroed(void* memory) noexcept;

}  // namespace gpusock::detail
