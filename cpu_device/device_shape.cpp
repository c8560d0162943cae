#include "cpu_device/device_shape.hpp"

#include "cpu_device/device_memory.hpp"
#include "cpu_device/pool.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace cpu_device {

namespace detail {

namespace {

// Set before the first launch, and then only read.
constinit std::atomic<std::uint64_t> g_kernel_clock_ahead_ns{0};
constinit std::atomic<std::uint64_t> g_kernel_clock_step_ns{1};
constinit std::atomic<bool> g_leaders_make_calls{true};

constexpr std::size_t kDescribedMax = 32;

}  // namespace

std::uint64_t kernel_clock_ns() noexcept {
  const std::uint64_t now_ns = clock_ns() + g_kernel_clock_ahead_ns.load(std::memory_order_relaxed);
  return now_ns - now_ns % g_kernel_clock_step_ns.load(std::memory_order_relaxed);
}

bool leaders_make_calls() noexcept { return g_leaders_make_calls.load(std::memory_order_relaxed); }

void Pool::set_shape(const DeviceShape& shape) {
  std::vector<std::shared_ptr<LaunchQueue>> queues(shape.hardware_queues);
  for (auto& queue : queues) queue = std::make_shared<LaunchQueue>();
  const Lock lock(mutex_);
  const std::uint64_t resident = resident_.load(std::memory_order_relaxed);  // relaxed: as in take_block()
  if (std::max(workers_, resident) > shape.resident_blocks_max) {
    throw std::logic_error(
        "set_device_shape: there were more resident blocks before; set the shape before the first launch");
  }
  if (shape.guarded_device_memory) guard_device_memory();
  shape_ = shape;
  queues_.swap(queues);
  next_queue_ = 0;
  g_kernel_clock_ahead_ns.store(shape.kernel_clock_ahead_ns, std::memory_order_relaxed);
  g_kernel_clock_step_ns.store(shape.kernel_clock_step_ns, std::memory_order_relaxed);
  g_leaders_make_calls.store(shape.leaders_make_calls, std::memory_order_relaxed);
}

Pool* Pool::of_child(const Pool& parents) {
  auto* pool = new Pool;
  pool->set_shape(parents.shape_);  // without the parent's mutex: a thread that is not in this process may hold it
  return pool;
}

DeviceShape Pool::shape() {
  const Lock lock(mutex_);
  return shape_;
}

std::unique_lock<std::mutex> Pool::wait_for_room(const Launch& launch) {
  const DeviceShape shape = this->shape();
  const std::uint64_t max = shape.queued_launches_max;
  if (max == 0) return {};
  std::unique_lock turn(launching_);
  {
    Lock lock(mutex_);
    const auto has_room = [&] { return launch.stream->unended < max; };
    if (some_launch_ended_.wait_for(lock, std::chrono::nanoseconds(shape.wait_max_ns), has_room)) return turn;
  }
  std::fprintf(stderr,
               "cpu_device: a launch of %s has waited for %.2f s, as on a GPU, because %" PRIu64
               " launches of its stream have not ended. All other launches wait for it. Synchronize with the stream "
               "more often. Launched and not ended:\n%s",
               launch.kernel_name().c_str(), static_cast<double>(shape.wait_max_ns) * 1e-9, max,
               describe_launches().c_str());
  std::abort();
}

std::shared_ptr<LaunchQueue> Pool::queue_of_new_stream() {
  const Lock lock(mutex_);
  if (queues_.empty()) return std::make_shared<LaunchQueue>();
  std::size_t chosen = next_queue_;
  for (std::size_t i = 1; i < queues_.size(); ++i) {
    const std::size_t other = (next_queue_ + i) % queues_.size();
    if (queues_[other].use_count() < queues_[chosen].use_count()) chosen = other;
  }
  next_queue_ = (chosen + 1) % queues_.size();
  return queues_[chosen];
}

bool Pool::wait_for_launches(std::uint64_t wait_max_ns) {
  Lock lock(mutex_);
  const std::uint64_t last = launches_made_;
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_max_ns);
  return some_launch_ended_.wait_until(lock, until,
                                       [&] { return unended_.empty() || unended_.front()->number > last; });
}

bool Pool::any_launch() {
  const Lock lock(mutex_);
  return !unended_.empty();
}

WaitingBlocks Pool::waiting_blocks() {
  Lock lock(mutex_);
  const bool full = resident_.load(std::memory_order_relaxed) >= shape_.resident_blocks_max;  // relaxed: a hint
  return {full ? pending(lock) : 0, blocks_ended_.load(std::memory_order_relaxed)};
}

std::string Pool::describe_launches() {
  const Lock lock(mutex_);
  std::string text;
  std::size_t left = unended_.size();
  for (const auto& launch : unended_) {
    if (unended_.size() - left == kDescribedMax) return text + "  and " + std::to_string(left) + " more\n";
    --left;
    const bool runs = launch->stream->queue->launches.front() == launch;
    text += "  " + launch->kernel_name() + ": " + std::to_string(launch->ended.load(std::memory_order_relaxed)) +
            " of " + std::to_string(launch->blocks) + " blocks have ended" +
            (runs ? "\n"
                  : ", none has started: waits for " + launch->stream->queue->launches.front()->kernel_name() +
                        " in its queue\n");
  }
  return text;
}

}  // namespace detail

void set_device_shape(const DeviceShape& shape) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("set_device_shape: ") + what);
  };
  require(shape.hardware_queues <= 1024, "at most 1024 hardware queues");
  require(shape.resident_blocks_max >= 1 && shape.resident_blocks_max <= kResidentBlocksMax,
          "1 to 1024 resident blocks");
  require(shape.kernel_clock_step_ns >= 1, "the kernels' clock goes in steps of 1 ns or more");
  detail::pool().set_shape(shape);
}

DeviceShape device_shape() { return detail::pool().shape(); }

WaitingBlocks waiting_blocks() { return detail::pool().waiting_blocks(); }

bool kernels_run() { return detail::pool().any_launch(); }

std::string describe_launches() { return detail::pool().describe_launches(); }

void wait_for_kernels(std::string_view call) {
  if (in_kernel()) throw std::logic_error(std::string(call) + " was called by a kernel: it would wait for itself");
  const std::uint64_t wait_max_ns = detail::pool().shape().wait_max_ns;
  if (detail::pool().wait_for_launches(wait_max_ns)) return;
  std::fprintf(stderr,
               "cpu_device: %.*s has waited for %.2f s, as on a GPU, for the kernels that run, and they do not end. Do "
               "it before they are "
               "launched, or after their end. Launched and not ended:\n%s",
               static_cast<int>(call.size()), call.data(), static_cast<double>(wait_max_ns) * 1e-9,
               describe_launches().c_str());
  std::abort();
}

}  // namespace cpu_device
