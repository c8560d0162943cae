#include "param_sync/fail_at.hpp"

#include <cuda/atomic>

#include <chrono>
#include <csignal>

namespace param_sync {

FailPoint::FailPoint(gpusock::Context& context, std::uint64_t step, std::uint32_t phase)
    : reached_(context, 1), step_(step), phase_(phase) {
  reached_[0] = 0;
  watching_ = std::jthread([this](const std::stop_token& ends) {
    const cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> reached(reached_[0]);
    while (!ends.stop_requested()) {
      if (reached.load(cuda::memory_order_relaxed) != 0) std::raise(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

}  // namespace param_sync
