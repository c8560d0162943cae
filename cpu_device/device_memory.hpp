#pragma once
/// @file Memory for kernels that host threads reach by copies alone, as a GPU's.
///
/// Kernels and host threads share an address space here. What keeps host threads out is a protection key (pkeys(7)),
/// whose rights each thread has for itself: those that run blocks have them. Where there are no such keys the memory is
/// ordinary.

#include <cstddef>

namespace cpu_device {

/// Zeroed whole pages. Throws std::bad_alloc.
void* allocate_device_memory(std::size_t bytes);
/// What allocate_device_memory() gave; nullptr: nothing.
void free_device_memory(void* memory) noexcept;
/// Copies to, from or within device memory, on any thread.
void copy_device_memory(void* to, const void* from, std::size_t bytes) noexcept;

/// True if a host thread that touches device memory faults. So it is where DeviceShape asks for it and the processor
/// and the operating system have protection keys.
bool device_memory_is_guarded() noexcept;

namespace detail {
/// From here on device memory that is allocated is guarded, if it can be.
void guard_device_memory() noexcept;
/// Gives the calling thread the right to use it.
void open_device_memory() noexcept;
}  // namespace detail

}  // namespace cpu_device
