#include "cpu_device/pool.hpp"

#include "cpu_device/device_memory.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cpu_device::detail {

namespace {

constexpr auto kMonitorPeriod = std::chrono::milliseconds(CPU_DEVICE_TSAN ? 20 : 2);  // TSan makes blocks slower
constexpr std::uint64_t kSlowStarts = 8;  // workers started one by one before the monitor starts more at a time

/// While it exists, a thread that is started takes no signal of the program: those are for the program's own threads,
/// and a handler would run on the stack of a kernel's thread. Faults of the thread itself are not blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Pool& pool() {
  static Pool* instance = nullptr;
  [[maybe_unused]] static const bool made = [] {
    install_fault_handlers();
    instance = new Pool;
    pthread_atfork(nullptr, nullptr, [] {
      [[maybe_unused]] static Pool* parents;  // keeps a pointer to the parent's pool, so that it is not a leak
      parents = std::exchange(instance, Pool::of_child(*instance));
    });
    return true;
  }();
  return *instance;
}

Pool::Pool()
    : processors_(std::max(1u, std::thread::hardware_concurrency())),
      no_memory_("", {0, 0, 0}, {0, 0, 0}, "no memory is left, also not to say where") {}

void Pool::enqueue(std::shared_ptr<Launch> launch) {
  std::list<std::shared_ptr<Launch>> queued{launch}, unended{launch};
  const auto turn = wait_for_room(*launch);
  Lock lock(mutex_);
  StreamState& stream = *launch->stream;
  if (stream.process != getpid()) throw std::invalid_argument("a stream of the process that forked this one");
  if (stream.fault) return;
  auto& launches = stream.queue->launches;
  const bool starts = launches.empty();  // else the worker that ends the previous launch starts this one
  if (starts) prepare(lock);
  launches.splice(launches.end(), queued);
  ++stream.unended;
  launch->number = ++launches_made_;
  launch->unended = unended.begin();
  unended_.splice(unended_.end(), unended);
  if (!starts) return;
  start(lock, std::move(launch));
  dispatch(lock, 0);
}

/// Ensures that a launch that is queued now will get a worker. Throws if it needs a new one and none can be started.
void Pool::prepare(Lock& lock) {
  if (!monitored_) {
    const SignalsBlocked blocked;
    std::thread([this] { monitor_main(); }).detach();
    monitored_ = true;
  }
  const bool processor_is_free = busy_.load(std::memory_order_seq_cst) < processors_;
  if (permits_ < idle_ || !processor_is_free || workers_ >= shape_.resident_blocks_max) return;
  try {
    start_worker(lock);
  } catch (const std::exception&) {
    // A worker that has just ended its block will take this launch, unless the queued launches need all such workers.
    const std::uint64_t free_workers = workers_ - in_blocks_.load(std::memory_order_relaxed);  // relaxed: the mutex
                                                                                               // orders ends
    if (free_workers <= runnable_count_.load(std::memory_order_relaxed)) throw;
  }
}

void Pool::start(Lock&, std::shared_ptr<Launch> launch) {
  Launch* const last = launch.get();
  (last_runnable_ ? last_runnable_->next_runnable : first_runnable_) = std::move(launch);
  last_runnable_ = last;
  runnable_count_.fetch_add(1, std::memory_order_seq_cst);
}

void Pool::pop_runnable(Lock&) {
  first_runnable_ = std::shared_ptr(std::move(first_runnable_->next_runnable));
  if (!first_runnable_) last_runnable_ = nullptr;
  runnable_count_.fetch_sub(1, std::memory_order_seq_cst);
}

std::uint64_t Pool::pending(Lock&) const {
  std::uint64_t blocks = 0;
  for (const Launch* launch = first_runnable_.get(); launch != nullptr; launch = launch->next_runnable.get()) {
    const std::uint64_t taken = launch->next.load(std::memory_order_relaxed);  // a stale value only starts one more
                                                                               // worker
    if (taken < launch->blocks) blocks += launch->blocks - taken;
  }
  return blocks;
}

/// Calls workers for pending blocks while processors are free, and up to `beyond` more. `taken_care_of` of the blocks
/// need none. Returns the number of workers that it called.
std::uint64_t Pool::dispatch(Lock& lock, std::uint64_t beyond, std::uint64_t taken_care_of) {
  std::uint64_t blocks = pending(lock);
  blocks -= std::min(blocks, taken_care_of);
  // relaxed: only takers, which hold the mutex, make it larger. If it gets smaller, the monitor looks again.
  const std::uint64_t resident = resident_.load(std::memory_order_relaxed), max = shape_.resident_blocks_max;
  const std::uint64_t fit = std::min(blocks, max - std::min(resident, max));
  const std::uint64_t called_before = permits_;
  while (permits_ < fit) {
    if (busy_.load(std::memory_order_seq_cst) >= processors_) {
      if (beyond == 0) break;
      --beyond;
    }
    if (permits_ >= idle_ && !try_start_worker(lock)) break;  // the blocks wait for existing workers
    ++permits_;
    busy_.fetch_add(1, std::memory_order_seq_cst);
    work_.notify_one();
  }
  if (permits_ < blocks) monitor_.notify_one();
  return permits_ - called_before;
}

/// Throws if no thread can be started, and has changed nothing then.
void Pool::start_worker(Lock&) {
  const SignalsBlocked blocked;
  std::thread([this, stack = SignalStack()]() mutable { worker_main(std::move(stack)); }).detach();
  ++workers_;
  ++idle_;
}

bool Pool::try_start_worker(Lock& lock) noexcept {
  if (workers_ >= shape_.resident_blocks_max) return false;
  try {
    start_worker(lock);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void Pool::begin_to_wait() {
  // Sequentially consistent with enqueue(): either that sees the free processor, or this sees what is pending.
  waiting_.fetch_add(1, std::memory_order_relaxed);
  busy_.fetch_sub(1, std::memory_order_seq_cst);
  call_workers();
}

/// Calls workers for what is pending.
void Pool::call_workers() {
  if (runnable_count_.load(std::memory_order_seq_cst) == 0) return;
  Lock lock(mutex_);
  dispatch(lock, 0);
}

void Pool::note_waiting(bool& noted, bool waits) {
  if (waits == std::exchange(noted, waits)) return;
  if (waits) return begin_to_wait();
  waiting_.fetch_sub(1, std::memory_order_relaxed);  // only sets how long others sleep
  busy_.fetch_add(1, std::memory_order_seq_cst);
}

std::uint64_t Pool::waiting_per_processor() const {
  return static_cast<std::uint64_t>(waiting_.load(std::memory_order_relaxed) / processors_);
}

bool Pool::take_block(Lock& lock, std::shared_ptr<Launch>& launch, std::uint64_t& index) {
  if (resident_.load(std::memory_order_relaxed) >= shape_.resident_blocks_max) return false;  // relaxed: see dispatch()
  while (first_runnable_) {
    launch = first_runnable_;
    index = launch->next.fetch_add(1, std::memory_order_relaxed);  // only numbers blocks; the mutex guards the launch
    if (index + 1 >= launch->blocks) pop_runnable(lock);           // `launch` keeps it alive
    if (index < launch->blocks) {
      resident_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

void Pool::worker_main(SignalStack signal_stack) {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // short sleeps of waiting blocks end on time
  prctl(PR_SET_NAME, "cpu_device", 0, 0, 0);
  signal_stack.install();
  Seats seats;
  for (Lock lock(mutex_);; ++idle_) {  // the thread that started this worker has counted it as idle
    while (permits_ == 0) work_.wait(lock);
    --idle_;
    --permits_;
    do {
      std::shared_ptr<Launch> launch;
      std::uint64_t index = 0;
      if (!take_block(lock, launch, index)) break;
      lock.unlock();
      in_blocks_.fetch_add(1, std::memory_order_relaxed);  // relaxed, as at the end: read under the mutex that comes
                                                           // before and after
      if (launch->shape.blocks_share_threads) {
        run_by_turns(seats, std::move(launch), index);
      } else {
        Seat& seat = seats.take();
        run_blocks(seat.block, *launch, index);
        seats.give_back(seats.taken());
        launch.reset();
      }
      lock.lock();
    } while (!crowded());
    busy_.fetch_sub(1, std::memory_order_seq_cst);
    dispatch(lock, 0);  // a block may have begun to wait since crowded() returned true
    seats.trim();
  }
}

/// Runs a block and then, without the mutex, further blocks of the launch.
void Pool::run_blocks(Block& block, Launch& launch, std::uint64_t index) {
  std::uint64_t count = 0;
  do {
    open_device_memory();  // again for each block: a fault's handler leaves the thread without the right
    block.start(launch, index);
    if (const auto failure = block.take_failure()) report(launch, *failure);
    ++count;
    blocks_ended_.fetch_add(1, std::memory_order_relaxed);  // tells the monitor that blocks end
    if (crowded()) break;
    index = launch.next.fetch_add(1, std::memory_order_relaxed);  // only numbers blocks; this worker has the launch
  } while (index < launch.blocks);
  in_blocks_.fetch_sub(1, std::memory_order_relaxed);
  resident_.fetch_sub(1, std::memory_order_relaxed);
  end_blocks(launch, count, true);
}

/// The fault that synchronize() throws for `failure`. If there is no memory for its text, a fault that says so.
KernelFault Pool::fault_of(const Launch& launch, const BlockFailure& failure) const {
  try {
    return KernelFault(launch.kernel_name(), failure.block, failure.thread,
                       failure.what.empty() ? "no memory is left" : failure.what);
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

/// The first failure becomes the stream's fault. Blocks of the launch that have not started yet never start.
void Pool::report(Launch& launch, const BlockFailure& failure) {
  KernelFault fault = fault_of(launch, failure);
  std::uint64_t taken = 0;
  {
    const Lock lock(mutex_);
    if (!launch.stream->fault) launch.stream->fault.emplace(std::move(fault));
    launch.failed.store(true, std::memory_order_relaxed);  // the grid's other blocks need not stop at once
    taken = launch.next.exchange(launch.blocks, std::memory_order_relaxed);
  }
  if (taken < launch.blocks) end_blocks(launch, launch.blocks - taken, false);
}

/// `takes_next`: the calling worker takes a block of the stream's next launch, if this one has ended.
void Pool::end_blocks(Launch& launch, std::uint64_t count, bool takes_next) {
  // Each block's writes are visible to the thread that ends the launch and, by the mutex, to threads that wait for it.
  if (launch.ended.fetch_add(count, std::memory_order_acq_rel) + count == launch.blocks) end_launch(launch, takes_next);
}

void Pool::end_launch(Launch& launch, bool takes_next) {
  launch.body = nullptr;                                  // destroys what it holds before synchronize() returns
  std::list<std::shared_ptr<Launch>> dropped, forgotten;  // destroyed after the mutex is released
  Lock lock(mutex_);
  StreamState& stream = *launch.stream;
  auto& launches = stream.queue->launches;
  dropped.splice(dropped.end(), launches, launches.begin());
  if (stream.fault) drop(lock, stream, dropped);
  for (const auto& ended : dropped) forgotten.splice(forgotten.end(), unended_, ended->unended);
  stream.unended -= dropped.size();
  some_launch_ended_.notify_all();
  if (stream.unended == 0) stream.ended.notify_all();
  if (!launches.empty()) {
    start(lock, launches.front());
    dispatch(lock, 0, takes_next ? 1 : 0);
  }
  lock.unlock();
}

/// Takes a stream's launches out of its queue. None of them runs.
void Pool::drop(Lock&, StreamState& stream, std::list<std::shared_ptr<Launch>>& dropped) {
  auto& launches = stream.queue->launches;
  for (auto next = launches.begin(); next != launches.end();) {
    const auto launch = next++;
    if ((*launch)->stream.get() == &stream) dropped.splice(dropped.end(), launches, launch);
  }
}

void Pool::monitor_main() {
  prctl(PR_SET_NAME, "cpu_device", 0, 0, 0);
  std::uint64_t started = 0;  // workers started in a row, while no block has ended
  std::uint64_t quiet_periods = 0;
  for (Lock lock(mutex_);;) {
    while (pending(lock) <= permits_) monitor_.wait(lock);
    const std::uint64_t ended = blocks_ended_.load(std::memory_order_relaxed);
    lock.unlock();
    std::this_thread::sleep_for(kMonitorPeriod);
    lock.lock();
    if (blocks_ended_.load(std::memory_order_relaxed) != ended) {
      started = quiet_periods = 0;
      continue;
    }
    ++quiet_periods;
    const bool spinning = spinning_.load(std::memory_order_relaxed) > 0;
    if (!spinning && quiet_periods < 1 + 4 * started) continue;
    const std::uint64_t more = spinning && started >= kSlowStarts ? std::min<std::uint64_t>(started, 64) : 1;
    started += dispatch(lock, more);  // if no thread can be started now, it tries again after the same time
    quiet_periods = 0;
  }
}

void Pool::wait(StreamState& stream) {
  if (stream.process != getpid()) return;  // its launches run in the process that forked this one
  Lock lock(mutex_);
  while (stream.unended != 0) stream.ended.wait(lock);
}

bool Pool::idle(StreamState& stream) {
  const Lock lock(mutex_);
  return stream.unended == 0;
}

std::optional<KernelFault> Pool::take_fault(StreamState& stream) {
  const Lock lock(mutex_);
  return std::exchange(stream.fault, std::nullopt);
}

}  // namespace cpu_device::detail
