#include "tests/support/cuda_double/machine.hpp"

#include "cpu_device/device_shape.hpp"
#include "cpu_device/pool.hpp"
#include "gpusock/types.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace cuda_double {
namespace {

constexpr std::chrono::milliseconds kHangLimit = std::chrono::seconds(20);

std::string thread_name() { return "thread " + std::to_string(syscall(SYS_gettid)); }

std::string seconds_since(Clock::time_point then) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(Clock::now() - then).count());
  return text;
}

std::string describe(const Operation& work) {
  return work.name + " (stream " + std::to_string(work.stream->number) + ")";
}

/// Kernels have a clock of their own, and host threads that touch device memory fault, as far as the processor allows.
/// Queues are the double's: copies pass them too.
cpu_device::DeviceShape gpu_shape() {
  cpu_device::DeviceShape shape;
  shape.kernel_clock_ahead_ns = std::uint64_t{5} * 365 * 24 * 3600 * 1'000'000'000;
  shape.kernel_clock_step_ns = 1'000;
  shape.guarded_device_memory = true;
  shape.leaders_make_calls = false;
  shape.resident_blocks_max = kResidentBlocksMax;
  return shape;
}

}  // namespace

thread_local int t_gpu = 0;
thread_local bool t_has_context = false;
thread_local cudaError_t t_last_error = cudaSuccess;

Machine& Machine::get() {
  static Machine* const machine = new Machine;  // never destroyed: its threads go on
  return *machine;
}

void Machine::initialize(Lock&) {
  if (initialized) return;
  initialized = true;
  cpu_device::set_device_shape(gpu_shape());
  static constexpr gpusock::detail::KernelsApart kApart{cpu_device::in_kernel, cpu_device::clock_ns};
  gpusock::detail::kernels_apart = &kApart;
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  if (connections != nullptr) queues = static_cast<int>(std::clamp(std::strtol(connections, nullptr, 10), 1L, 32L));
  lazy = loading == nullptr || std::string(loading) != "EAGER";
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  launches_block = blocking != nullptr && *blocking != 0 && std::string(blocking) != "0";
  const char* const peers = std::getenv("GPUSOCK_TEST_PEERS");
  peers_reach_each_other = peers == nullptr || std::string(peers) != "off";
  for (Gpu& gpu : gpus) {
    for (int i = 0; i < queues; ++i) gpu.queues.push_back(std::make_unique<Queue>());
  }
  std::thread([this] { watch(); }).detach();
}

std::string Machine::running_work(int gpu) const {
  std::string text;
  for (const auto& queue : gpus[static_cast<std::size_t>(gpu)].queues) {
    if (queue->running == nullptr) continue;
    text += (text.empty() ? "" : ", ") + describe(*queue->running) + ", which has run for " +
            seconds_since(queue->running->since);
  }
  return text.empty() ? "nothing that runs" : text;
}

void Machine::wait_for_work(Lock& lock, int gpu, const std::string& call) {
  std::vector<Work> before;
  for (const auto& queue : gpus[static_cast<std::size_t>(gpu)].queues) {
    if (queue->running != nullptr) before.push_back(queue->running);
    before.insert(before.end(), queue->waiting.begin(), queue->waiting.end());
  }
  for (const Work& work : before) work->awaited = true;
  changed.notify_all();
  wait(
      lock, call + " (" + thread_name() + ")", [this, gpu] { return running_work(gpu); },
      [&] { return std::all_of(before.begin(), before.end(), [](const Work& work) { return work->ended; }); });
  run_late(lock, gpu);
}

void Machine::wait_for_peers(Lock& lock, int gpu, const std::string& call) {
  for (int other = 0; other < kGpus; ++other) {
    const bool reaches = gpus[static_cast<std::size_t>(other)].reaches[static_cast<std::size_t>(gpu)];
    if (other != gpu && reaches) wait_for_work(lock, other, call);
  }
}

void Machine::wait_for(Lock& lock, const Work& work, const std::string&) {
  if (work == nullptr) return;
  work->awaited = true;
  changed.notify_all();
  changed.wait(lock, [&] { return work->ended; });  // not watched: a program may wait for its kernels as long as it
                                                    // likes
}

void Machine::wait_for_room(Lock& lock, const CUstream_st& stream, const std::string& call) {
  const Queue& queue = *gpus[static_cast<std::size_t>(stream.gpu)].queues[static_cast<std::size_t>(stream.queue)];
  wait(
      lock, call + " (" + thread_name() + ")",
      [&] {
        return "room in its hardware queue, where " + std::to_string(queue.waiting.size()) + " wait for " +
               running_work(stream.gpu);
      },
      [&] { return queue.waiting.size() < kQueuedMax; });
}

void Machine::end_launch(Lock& lock, const Work& work, const std::string& call) {
  if (!launches_block) return;
  wait(
      lock, call + " (" + thread_name() + ")", [&] { return describe(*work) + ", as CUDA_LAUNCH_BLOCKING says"; },
      [&] { return work->ended; });
}

void Machine::run_late(Lock&, int gpu) {
  auto& late = gpus[static_cast<std::size_t>(gpu)].late;
  for (const auto& each : late) each();
  late.clear();
}

Work Machine::enqueue(Lock&, CUstream_st& stream, std::string name, bool is_copy, std::function<void()> run) {
  auto work = std::make_shared<Operation>(Operation{std::move(name), &stream, std::move(run), is_copy, Clock::now()});
  Queue& queue = *gpus[static_cast<std::size_t>(stream.gpu)].queues[static_cast<std::size_t>(stream.queue)];
  if (!queue.thread.joinable()) queue.thread = std::thread([this, &queue] { serve(queue); });
  queue.waiting.push_back(work);
  stream.last = work;
  changed.notify_all();
  return work;
}

bool Machine::holds_back(const Queue& queue) const {
  return slow_copies > 0 && queue.waiting.front()->is_copy &&
         std::none_of(queue.waiting.begin(), queue.waiting.end(), [](const Work& work) { return work->awaited; });
}

void Machine::serve(Queue& queue) {
  for (Lock lock(mutex);;) {
    changed.wait(lock, [&] { return !queue.waiting.empty() && !holds_back(queue); });
    const Work work = queue.waiting.front();
    queue.waiting.pop_front();
    run(lock, queue, work);
  }
}

void Machine::run(Lock& lock, Queue& queue, const Work& work) {
  queue.running = work;
  work->running = true;
  work->since = Clock::now();
  changed.notify_all();
  if (sticky == cudaSuccess) {
    lock.unlock();
    std::string failure;
    try {
      work->run();
    } catch (const cpu_device::KernelFault& fault_of_kernel) {
      failure = fault_of_kernel.what();
    }
    lock.lock();
    if (!failure.empty() && sticky == cudaSuccess) {
      sticky = cudaErrorLaunchFailure;
      fault = failure;
    }
  }
  work->run = nullptr;
  work->running = false;
  work->ended = true;
  queue.running = nullptr;
  changed.notify_all();
}

void Machine::load(Lock& lock, int gpu, Kernel& kernel, const std::string& call) {
  bool& loaded = kernel.loaded[static_cast<std::size_t>(gpu)];
  if (loaded) return;
  if (lazy) wait_for_work(lock, gpu, call + ", which loads " + kernel.name + ",");
  loaded = true;
}

void Machine::set_stack(Lock& lock, int gpu, std::size_t bytes, const std::string& call) {
  std::size_t& there = gpus[static_cast<std::size_t>(gpu)].stack_bytes;
  if (bytes <= there) return;
  wait_for_work(lock, gpu, call + ", which makes stacks larger,");
  there = bytes;
}

CUkern_st* Machine::kernel_of(const void* symbol) {
  const auto found = kernels.find(symbol);
  return found == kernels.end() ? nullptr : found->second.get();
}

const Allocation* Machine::allocation_at(const void* address, std::size_t bytes, bool* whole) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return nullptr;
  const auto& [begin, allocation] = *--next;
  if (at >= begin + allocation.bytes) return nullptr;
  if (whole != nullptr) *whole = bytes <= begin + allocation.bytes - at;
  return &allocation;
}

/// Who waits for whom, where somebody has waited for too long; else nothing.
std::string Machine::find_hang(std::chrono::milliseconds limit) const {
  const auto now = Clock::now();
  bool too_long = false;
  std::string text;
  for (const Waiting& each : waiting) {
    too_long |= now - each.since > limit;
    text += "  " + each.who + " waits for " + each.for_what() + "\n";
  }
  for (const Gpu& gpu : gpus) {
    for (const auto& queue : gpu.queues) {
      if (queue->running == nullptr) continue;
      for (const Work& work : queue->waiting) {
        if (work->stream == queue->running->stream) continue;
        too_long |= now - work->since > limit && now - queue->running->since > limit;
        text += "  " + describe(*work) + " waits for " + describe(*queue->running) +
                ": their streams share hardware queue " + std::to_string(work->stream->queue) + " of " +
                std::to_string(queues) + "\n";
      }
    }
  }
  const bool blocks_too_long = waiting_blocks.waiting != 0 && now - blocks_stand_since > limit;
  if (blocks_too_long) {
    text += "  " + std::to_string(waiting_blocks.waiting) + " blocks wait to become resident, as " +
            std::to_string(kResidentBlocksMax) + " are, of which none ends: " + running_work(0) + " on GPU 0, " +
            running_work(1) + " on GPU 1\n";
  }
  return too_long || blocks_too_long ? text : "";
}

void Machine::look_at_blocks() {
  const auto now = cpu_device::waiting_blocks();
  const bool stands = now.waiting != 0 && now.ended == waiting_blocks.ended && waiting_blocks.waiting != 0;
  if (!stands) blocks_stand_since = Clock::now();
  waiting_blocks = now;
}

void Machine::watch() {
  std::string told;
  for (Lock lock(mutex);;) {
    const auto limit = hang_limit.count() != 0 ? hang_limit : kHangLimit;
    changed.wait_for(lock, limit / 4);
    look_at_blocks();
    const std::string hang = find_hang(limit);
    if (hang.empty()) told.clear();
    if (hang.empty() || !told.empty()) continue;
    told = "cuda_double: these wait for each other:\n" + hang;
    const auto handler = hang_handler;
    lock.unlock();
    if (handler == nullptr) {
      std::fputs(told.c_str(), stderr);
      std::abort();
    }
    handler(told);
    lock.lock();
  }
}

Call::Call(std::string name, Effect effect) : name_(std::move(name)), effect_(effect) {
  machine_.initialize(lock_);
  machine_.wait(
      lock_, name_ + " (" + thread_name() + ")", [this] { return machine_.holder; },
      [this] { return machine_.holder.empty(); });
  machine_.holder = name_ + " (" + thread_name() + ")";
  holds_ = true;
  outcome_ = machine_.sticky;
  if (++machine_.calls == machine_.fail_at) {
    machine_.failed = name_;
    const bool allocates = name_ == "cudaMalloc" || name_ == "cudaHostAlloc" || name_ == "cudaHostRegister";
    outcome_ = allocates ? cudaErrorMemoryAllocation : cudaErrorUnknown;
  }
}

Call::~Call() { release(); }

void Call::release() {
  if (!std::exchange(holds_, false)) return;
  machine_.holder.clear();
  machine_.changed.notify_all();
}

cudaError_t Call::end(cudaError_t error) {
  if (outcome_ == cudaSuccess) outcome_ = machine_.sticky;  // where a kernel has failed meanwhile
  if (outcome_ != cudaSuccess) error = outcome_;
  if (error != cudaSuccess) t_last_error = error;
  return error;
}

void Call::wait_without_driver(const Work& work) {
  release();
  machine_.wait_for(lock_, work, name_);
}

int Call::gpu() const { return t_gpu; }

// What tests call.

void note_kernel(const void* symbol, Binder binder) {
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  auto& kernel = machine.kernels[symbol];
  if (kernel == nullptr) {
    kernel = std::make_unique<CUkern_st>();
    kernel->name = cpu_device::detail::function_name(symbol);
    machine.libraries.emplace_back().kernels = {kernel.get()};
    kernel->library = &machine.libraries.back();
  }
  kernel->bind = binder;
}

void describe_library(const std::vector<KernelFacts>& facts) {
  Machine& machine = Machine::get();
  const Lock lock(machine.mutex);
  CUlib_st& library = machine.libraries.emplace_back();
  for (const KernelFacts& each : facts) {
    CUkern_st* const kernel = machine.kernel_of(each.symbol);
    kernel->stack_bytes = each.stack_bytes;
    kernel->registers = each.registers;
    kernel->library = &library;
    library.kernels.push_back(kernel);
  }
}

namespace {

/// A value of the machine, read under its mutex, after the driver has read the environment.
template <class Read>
auto read(Read get) {
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  machine.initialize(lock);
  return get(machine);
}

}  // namespace

bool loads_lazily() {
  return read([](Machine& machine) { return machine.lazy; });
}
int hardware_queues() {
  return read([](Machine& machine) { return machine.queues; });
}
void set_lazy_loading(bool lazy) {
  read([&](Machine& machine) { return machine.lazy = lazy; });
}
void set_launches_block(bool block) {
  read([&](Machine& machine) { return machine.launches_block = block; });
}
std::size_t stack_bytes(int gpu) {
  return read([&](Machine& machine) { return machine.gpus[static_cast<std::size_t>(gpu)].stack_bytes; });
}
void fail_call(std::uint64_t n) {
  read([&](Machine& machine) {
    machine.failed.clear();
    machine.calls = 0;
    return machine.fail_at = n;
  });
}
std::uint64_t calls_made() {
  return read([](Machine& machine) { return machine.calls; });
}
std::string failed_call() {
  return read([](Machine& machine) { return machine.failed; });
}
std::string fault() {
  return read([](Machine& machine) { return machine.fault; });
}
void forget_fault() {
  t_last_error = cudaSuccess;
  read([](Machine& machine) {
    machine.fault.clear();
    return machine.sticky = cudaSuccess;
  });
}

std::vector<std::string> left() {
  return read([](Machine& machine) {
    std::vector<std::string> all;
    for (const auto& [address, allocation] : machine.memory) {
      constexpr const char* kCalls[] = {"cudaMalloc ", "cudaHostAlloc ", "cudaHostRegister "};
      const char* const by = allocation.is_mapped ? "cuMemMap " : kCalls[static_cast<int>(allocation.kind)];
      all.push_back(by + std::to_string(allocation.bytes));
    }
    all.insert(all.end(), machine.handles.size(), "handle of memory");
    all.insert(all.end(), machine.reservations.size(), "reserved addresses");
    all.insert(all.end(), machine.streams.size(), "stream");
    all.insert(all.end(), machine.events.size(), "event");
    return all;
  });
}

void on_hang(std::function<void(const std::string&)> handler) {
  read([&](Machine& machine) {
    machine.hang_handler = std::move(handler);
    return 0;
  });
}
void set_hang_limit(std::chrono::milliseconds limit) {
  read([&](Machine& machine) {
    machine.changed.notify_all();
    return machine.hang_limit = limit;
  });
}

namespace {

/// Waits until a thread waits for which that is true.
template <class IsIt>
void await_waiting(IsIt is_it) {
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  machine.changed.wait(lock, [&] { return std::any_of(machine.waiting.begin(), machine.waiting.end(), is_it); });
}

}  // namespace

void await_waiting_call(const std::string& name) {
  await_waiting([&](const Waiting& each) { return each.who.starts_with(name); });
}
void await_call_that_waits_for(const std::string& name) {
  await_waiting([&](const Waiting& each) { return each.for_what().starts_with(name); });
}

void set_peers_reach_each_other(bool reach) {
  read([&](Machine& machine) { return machine.peers_reach_each_other = reach; });
}

int copies_under_way() {
  return read([](Machine& machine) {
    int count = 0;
    for (const Gpu& gpu : machine.gpus) {
      for (const auto& queue : gpu.queues) {
        count += queue->running != nullptr && queue->running->is_copy;
        for (const Work& work : queue->waiting) count += work->is_copy;
      }
    }
    return count;
  });
}

SlowCopies::SlowCopies() {
  read([](Machine& machine) { return ++machine.slow_copies; });
}
SlowCopies::~SlowCopies() {
  read([](Machine& machine) {
    machine.changed.notify_all();
    return --machine.slow_copies;
  });
}

}  // namespace cuda_double
