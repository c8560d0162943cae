#pragma once
/// @file The interface of a context's device. The libraries gpusock::cpu and gpusock::cuda have one implementation
/// each.

#include "gpusock/gpusock.hpp"
#include "host_proxy/memory/platform.hpp"
#include "host_proxy/proxy/news.hpp"

#include <functional>
#include <memory>

namespace gpusock::detail {

/// An in-order queue of launches.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void synchronize() = 0;  ///< throws Error (EFAULT) when a kernel failed
  virtual bool idle() const = 0;
  /// Waits for all launches. Does not report a kernel that failed.
  void finish() noexcept {
    try {
      synchronize();
    } catch (const Error&) {
    }
  }
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::shared_ptr<proxy::Platform> platform() = 0;
  /// True if kernels have sockets of their own, apart from the host threads': device memory is not host memory.
  virtual bool has_own_side() const = 0;
  /// True if a forked process gets a copy of all host memory that Platform::allocate_shared() has returned.
  virtual bool is_copied_by_fork() const { return true; }

  virtual void* allocate(std::size_t bytes) = 0;  ///< zeroed device memory; throws Error (ENOMEM)
  virtual void free(void* memory) noexcept = 0;
  virtual void copy_in(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, std::size_t bytes) = 0;
  virtual void* allocate_mapped(std::size_t bytes) = 0;  ///< zeroed; throws Error (ENOMEM)
  virtual void free_mapped(void* memory) noexcept = 0;
  /// Frees memory of allocate(), or of allocate_mapped() if `mapped`, unless that would wait for running kernels of any
  /// context. Returns true if it has freed the memory.
  virtual bool free_without_waiting(void* memory, bool mapped) noexcept = 0;
  /// The same for all that `free_memory` frees, which may be this Device itself.
  virtual bool free_without_waiting(const std::function<void()>& free_memory) noexcept = 0;

  virtual std::unique_ptr<DeviceStream> make_stream() = 0;

  /// One turn of a wait on a host thread (or the CPU device).
  virtual void relax(std::uint64_t waited_ns) = 0;
  /// The same, for a wait that ends only after there was news.
  virtual void relax_until(proxy::News&, std::uint64_t waited_ns) { relax(waited_ns); }

  /// The index of the block that runs on the calling thread; -1 on a thread that runs none.
  virtual std::int64_t running_block() const { return -1; }

  /// The function that takes the notes of kernels' calls (detail::Hooks::note); nullptr if no kernel runs on a CPU. It
  /// is a function, not a method, because each call makes two notes.
  using Note = void* (*)(void (*end)(void* self, std::int32_t handle, int kind) noexcept, void* self,
                         std::int32_t handle, int kind, void* result) noexcept;
  virtual Note note_unfinished() const { return nullptr; }
  /// The same for what lasts longer than a call (detail::Hooks::keep, drop).
  using Keep = bool (*)(void (*end)(void* self, std::int32_t handle, int kind) noexcept, void* self,
                        std::int32_t handle, int kind) noexcept;
  using Drop = void (*)(void* self, std::int32_t handle) noexcept;
  virtual Keep keep_unfinished() const { return nullptr; }
  virtual Drop drop_unfinished() const { return nullptr; }
};

/// Makes the device that the options name. Throws Error (ENODEV) if there is none.
std::unique_ptr<Device> make_device(const Options& options);

}  // namespace gpusock::detail
