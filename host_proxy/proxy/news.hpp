#pragma once
/// @file The words by which callers that have waited for long sleep until a step of the proxy has done something.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace gpusock::proxy {

/// A sleeper counts itself in `sleepers`, and then waits for `times` to differ from what it was before its last look
/// (futex(2)). Who has news adds 1 to `times`, and then looks at `sleepers`. seq_cst: either it sees the sleeper, or
/// the sleeper sees the news.
struct News {
  alignas(64) std::atomic<std::uint32_t> times{0};
  std::atomic<std::uint32_t> sleepers{0};

  /// Call it after what callers wait for was published.
  void tell() noexcept {
    times.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0)
      syscall(SYS_futex, &times, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};

}  // namespace gpusock::proxy
