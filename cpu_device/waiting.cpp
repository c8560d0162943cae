#include "cpu_device/launch.hpp"
#include "cpu_device/pool.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace cpu_device {

namespace detail {

namespace {

constexpr std::uint64_t kPauseAfterNs = 1'000;
constexpr std::uint64_t kSleepMinNs = 20'000;
constexpr std::uint64_t kSleepMaxNs = 500'000;
constexpr std::uint64_t kWakeNs = 20'000;  // twice the processor time of a wake-up, on virtual machines too
constexpr std::uint64_t kBellAfterNs = 5'000'000;
constexpr std::uint64_t kBellMaxNs = 20'000'000;

/// The bell that this OS thread waits for, and how often it had been rung before the waiting thread last looked at what
/// it waits for.
constinit thread_local const std::atomic<std::uint32_t>* t_rung = nullptr;
constinit thread_local std::uint32_t t_times_rung = 0;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

timespec timespec_of(std::uint64_t duration_ns) noexcept {
  return {static_cast<time_t>(duration_ns / 1'000'000'000), static_cast<long>(duration_ns % 1'000'000'000)};
}

void sleep_ns(std::uint64_t duration_ns) noexcept {
  const timespec duration = timespec_of(duration_ns);
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

/// Sleeps until the bell is rung, if it was not since the turn before. Else returns false. The thread looks at what it
/// waits for between two turns. So if that comes, either the look finds it, or `rung` has changed and ends the sleep:
/// the kernel compares it after this thread counts as a sleeper.
bool sleep_until_rung(const Bell& bell, std::uint64_t waited_ns) noexcept {
  if (waited_ns < kBellAfterNs) return false;  // first: who rings often writes the word that the next line reads
  const std::uint32_t times = bell.rung->load(std::memory_order_acquire);
  if (std::exchange(t_rung, bell.rung) != bell.rung || times != std::exchange(t_times_rung, times)) return false;
  const timespec most = timespec_of(std::min(waited_ns / 10, kBellMaxNs));
  bell.sleepers->fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, bell.rung, FUTEX_WAIT_PRIVATE, times, &most, nullptr, 0);
  bell.sleepers->fetch_sub(1, std::memory_order_relaxed);
  return true;
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

void relax(std::uint64_t waited_ns, const Bell& bell) noexcept {
  if (detail::t_running) {
    detail::t_running->relax(waited_ns, &bell);
  } else if (!detail::sleep_until_rung(bell, waited_ns)) {
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
