#pragma once
/// @file Memory for kernels that host threads reach by copies alone, as a GPU's.
///
/// Kernels and host threads share an address space here. What keeps host threads out is a protection key (pkeys(7)),
/// whose rights each thread has for itself: those that run blocks have them. Where there are no such keys the memory is
/// ordinary.

#include <cstddef>
#include <optional>

namespace cpu_device {

/// Zeroed whole pages. Throws std::bad_alloc.
void* allocate_device_memory(std::size_t bytes);
/// What allocate_device_memory() or map_device_memory() gave; nullptr: nothing.
void free_device_memory(void* memory) noexcept;
/// Copies to, from or within device memory, on any thread.
void copy_device_memory(void* to, const void* from, std::size_t bytes) noexcept;

/// True if a host thread that touches device memory faults. So it is where DeviceShape asks for it and the processor
/// and the operating system have protection keys.
bool device_memory_is_guarded() noexcept;

/// A file of device memory, which other processes can map: zeroed whole pages that are said to be of GPU `gpu`, open to
/// this user alone. Its descriptor, which the caller closes. Throws std::system_error.
int make_device_memory_file(std::size_t bytes, int gpu);
/// The GPU whose memory the file is; nothing if it is no such file, another user's, or not of this size.
std::optional<int> gpu_of_device_memory(int file, std::size_t bytes);
/// Its memory, as allocate_device_memory() gives it; in the place of what was mapped at `at`, if that is not nullptr.
/// Throws std::bad_alloc.
void* map_device_memory(int file, std::size_t bytes, void* at = nullptr);

namespace detail {
/// From here on device memory that is allocated is guarded, if it can be.
void guard_device_memory() noexcept;
/// Gives the calling thread the right to use it.
void open_device_memory() noexcept;
}  // namespace detail

}  // namespace cpu_device
