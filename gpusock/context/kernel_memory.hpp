#pragma once
/// @file The memory that a context's user gets for kernels. Memory that is freed while a launch may still use it is
/// kept until no launch can.

#include "gpusock/context/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace gpusock::detail {

/// Any thread may call. Launches are numbered: those made between the allocation of a piece of memory and its free()
/// may use it. free(), remove() and free_unused() check whether these launches have ended.
class KernelMemory {
 public:
  enum class Kind { device, mapped };

  explicit KernelMemory(Device& device) : device_(device) {}
  ~KernelMemory();  ///< frees what is left; all launches have ended. On a GPU this waits for the kernels of other
                    ///< contexts
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Returns zeroed memory. Throws Error (ENOMEM).
  void* allocate(Kind kind, std::size_t bytes);
  /// Frees memory, now or when no launch can use it any more. Never waits for a kernel.
  void free(void* memory) noexcept;
  void free_unused() noexcept;
  /// Bytes of device memory that the user has now. What was freed and is kept for now does not count.
  std::uint64_t device_bytes() const;

  void add(DeviceStream& stream);
  /// Forgets a stream. All of its launches have ended.
  void remove(DeviceStream& stream) noexcept;
  /// Counts a launch that was queued on this stream.
  void note_launch(DeviceStream& stream) noexcept;
  std::vector<DeviceStream*> streams() const;
  /// True from a launch until a check of the streams finds none busy. For threads that must not ask the device.
  const std::atomic<bool>& kernels_may_run() const { return may_run_; }

 private:
  /// The numbers of the first and the last launch since the stream was seen idle; these may still run. If `last` is 0,
  /// none may run.
  struct Running {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  struct Piece {
    Kind kind = Kind::device;
    std::size_t bytes = 0;
    std::uint64_t allocated_after = 0;  ///< the number of the last launch before the allocation
    std::uint64_t freed_after = 0;
  };
  using Pieces = std::map<void*, Piece>;

  bool forget_idle_streams();
  bool in_use(const Piece& piece) const;
  void take_unused(Pieces& unused);
  void free_all(const Pieces& pieces) noexcept;
  void free_or_keep(Pieces pieces) noexcept;

  Device& device_;
  mutable std::mutex mutex_;
  std::uint64_t launches_ = 0;
  std::map<DeviceStream*, Running> streams_;
  std::atomic<bool> may_run_{false};
  Pieces allocated_;
  Pieces freed_;          ///< by the user, and kept for now
  bool refused_ = false;  ///< no launch uses some of these, but freeing them would have waited for kernels of
                          ///< another context
};

}  // namespace gpusock::detail
