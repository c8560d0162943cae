#pragma once
/// @file The memory that a context's user gets for kernels. What is freed while a launch may still use it is kept until
/// then.

#include "gpusock/context/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace gpusock::detail {

/// Any thread may call. Launches are numbered; a piece of memory may be in use by those that were made between its
/// allocation and its end. Whether these have ended is looked up when memory or streams are freed, and by
/// free_unused().
class KernelMemory {
 public:
  enum class Kind { device, mapped };

  explicit KernelMemory(Device& device) : device_(device) {}
  ~KernelMemory();  ///< frees what is left; all launches have ended. On a GPU this waits for the kernels of other
                    ///< contexts
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Zeroed. Throws Error (ENOMEM).
  void* allocate(Kind kind, std::size_t bytes);
  /// Frees memory, now or when no launch can use it any more. Never waits for a kernel.
  void free(void* memory) noexcept;
  void free_unused() noexcept;

  void add(DeviceStream& stream);
  /// All of its launches have ended.
  void remove(DeviceStream& stream) noexcept;
  /// A launch was queued on this stream.
  void note_launch(DeviceStream& stream) noexcept;
  std::vector<DeviceStream*> streams() const;
  /// True from a launch until a look at the streams finds none that runs; for threads that must not ask the device.
  const std::atomic<bool>& kernels_may_run() const { return may_run_; }

 private:
  /// Launches that may still run: from the first to the last one since the stream was seen idle. None where `last` is
  /// 0.
  struct Running {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  struct Piece {
    Kind kind = Kind::device;
    std::uint64_t allocated_after = 0;  ///< the number of the last launch before
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
  Pieces freed_;          ///< but kept
  bool refused_ = false;  ///< no launch uses some of these: freeing them would have waited for another context's
                          ///< kernels
};

}  // namespace gpusock::detail
