#pragma once
/// @file Memory that is zero, as that of DeviceBuffer and Mapped is. Large pieces are fresh pages of the system, which
/// are zero by themselves: they take time and memory only once they are used.

#include <cstddef>

namespace gpusock::detail {

/// Aligned to 256 bytes. nullptr: there is no memory.
void* allocate_zeroed(std::size_t bytes) noexcept;
/// Frees what allocate_zeroed() returned.
void free_zeroed(void* memory) noexcept;

}  // namespace gpusock::detail
