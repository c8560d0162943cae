#pragma once
/// @file Memory for kernels that host threads can only copy to and from, like a GPU's memory.
///
/// On the CPU device, kernels and host threads share an address space. A protection key (pkeys(7)) keeps host threads
/// out: each thread has its own rights to a key, and only threads that run blocks may use this memory. Without
/// protection keys, it is ordinary memory.

#include <cstddef>
#include <optional>

namespace cpu_device {

/// Returns zeroed whole pages. Throws std::bad_alloc.
void* allocate_device_memory(std::size_t bytes);
/// Frees what allocate_device_memory() or map_device_memory() returned. Does nothing for nullptr.
void free_device_memory(void* memory) noexcept;
/// Copies to, from or within device memory, on any thread.
void copy_device_memory(void* to, const void* from, std::size_t bytes) noexcept;

/// True if a host thread that touches device memory faults: DeviceShape asks for it, and the processor and the
/// operating system have protection keys.
bool device_memory_is_guarded() noexcept;

/// Makes a file of device memory that other processes of this user can map: zeroed whole pages that count as memory of
/// GPU `gpu`. Returns its descriptor, which the caller closes. Throws std::system_error.
int make_device_memory_file(std::size_t bytes, int gpu);
/// The GPU whose memory the file is; nothing if it is not such a file, belongs to another user, or has another size.
std::optional<int> gpu_of_device_memory(int file, std::size_t bytes);
/// Maps such a file, as device memory that is guarded in the same way. If `at` is not nullptr, this replaces what was
/// mapped there. Throws std::bad_alloc.
void* map_device_memory(int file, std::size_t bytes, void* at = nullptr);

namespace detail {
/// Guards the device memory that is allocated after this call, if that is possible.
void guard_device_memory() noexcept;
/// Gives the calling thread the right to use device memory.
void open_device_memory() noexcept;
}  // namespace detail

}  // namespace cpu_device
