#include "cpu_device/launch.hpp"
#include "cpu_device/pool.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

namespace cpu_device {

namespace detail {

namespace {

constexpr std::uint64_t kPauseAfterNs = 1'000;
constexpr std::uint64_t kSleepMinNs = 20'000;
constexpr std::uint64_t kSleepMaxNs = 500'000;
constexpr std::uint64_t kWakeNs = 20'000;  // twice the processor time of a wake-up, on virtual machines too

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_ns(std::uint64_t duration_ns) noexcept {
  const timespec duration{static_cast<time_t>(duration_ns / 1'000'000'000),
                          static_cast<long>(duration_ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &duration, nullptr);
}

}  // namespace

std::uint64_t clock_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The longer a wait has lasted, the less processor time it gets: each sleep lasts a tenth of the wait. Hundreds of
/// waiting blocks together take at most half of the processors: otherwise the blocks that they wait for hardly run.
void back_off(std::uint64_t waited_ns, std::uint64_t waiting_per_processor) noexcept {
  if (waited_ns < kPauseAfterNs) return;
  if (waited_ns < kYieldAfterNs) return pause();
  if (waited_ns < kSpinNs) {
    sched_yield();
    return;
  }
  sleep_ns(std::clamp(waited_ns / 10, kSleepMinNs, std::max(kSleepMaxNs, waiting_per_processor * kWakeNs)));
}

void yield() noexcept {
  if (t_running) t_running->yield();
}

void nanosleep(std::uint64_t duration_ns) noexcept {
  if (t_running) {
    t_running->nanosleep(duration_ns);
  } else {
    sleep_ns(duration_ns);
  }
}

}  // namespace detail

bool in_kernel() noexcept { return detail::t_running != nullptr; }

std::int64_t running_block() noexcept {
  if (!in_kernel()) return -1;
  const std::int64_t x = gridDim.x, y = gridDim.y;
  return blockIdx.x + x * (blockIdx.y + y * blockIdx.z);
}

void relax(std::uint64_t waited_ns) noexcept {
  if (detail::t_running) {
    detail::t_running->relax(waited_ns);
  } else {
    detail::back_off(waited_ns, 0);
  }
}

void* note_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind, void* result) noexcept {
  if (!detail::t_running) return result;
  Unfinished& noted = detail::t_running->current().unfinished;
  noted.end = end;
  if (end == nullptr) return result;
  noted.self = self;
  noted.handle = handle;
  noted.kind = kind;
  return result;
}

bool keep_unfinished(Unfinished::End end, void* self, std::int32_t handle, int kind) noexcept {
  if (!detail::t_running) return true;
  try {
    detail::t_running->current().kept.push_back({end, self, handle, kind});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void drop_unfinished(void* self, std::int32_t handle) noexcept {
  if (!detail::t_running) return;
  std::vector<Unfinished>& kept = detail::t_running->current().kept;
  const auto latest = std::find_if(kept.rbegin(), kept.rend(),
                                   [&](const Unfinished& one) { return one.self == self && one.handle == handle; });
  if (latest != kept.rend()) kept.erase(std::next(latest).base());
}

std::uint64_t thread_switches() noexcept { return in_kernel() ? detail::t_running->switches() : 0; }

std::uint64_t clock_ns() noexcept { return in_kernel() ? detail::kernel_clock_ns() : detail::clock_ns(); }

void* dynamic_shared() noexcept { return detail::t_thread->block->dynamic_shared; }

}  // namespace cpu_device
