#include "cpu_device/block.hpp"

#include "cpu_device/pool.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>

namespace cpu_device::detail {

namespace {

constexpr BlockInfo kHostBlock{};
constexpr ThreadInfo kHostThread{.block = &kHostBlock};

/// A worker without a block keeps at most this many stacks, or one if all workers together keep many. Each stack takes
/// two of the 65530 mappings that a process may have (vm.max_map_count).
constexpr unsigned kIdleCarriersKept = CPU_DEVICE_TSAN ? 1024 : 64;  // TSan never frees its memory for a fiber
constexpr unsigned kIdleCarriersKeptInAll = 4096;
std::atomic<unsigned> carriers_kept{0};

std::atomic<std::size_t> bytes_placed{0};

uint3 at(std::uint64_t linear, const dim3& shape) {
  const std::uint64_t row = linear / shape.x;
  return {static_cast<unsigned>(linear % shape.x), static_cast<unsigned>(row % shape.y),
          static_cast<unsigned>(row / shape.y)};
}

}  // namespace

std::size_t place_in_block(std::size_t bytes, std::size_t alignment) noexcept {
  std::size_t before = bytes_placed.load(std::memory_order_relaxed), begin;  // relaxed: only numbers
  do {
    begin = (before + alignment - 1) / alignment * alignment;
  } while (!bytes_placed.compare_exchange_weak(before, begin + bytes, std::memory_order_relaxed));
  return begin;
}

std::size_t bytes_of_places() noexcept { return bytes_placed.load(std::memory_order_relaxed); }

constinit thread_local const ThreadInfo* t_thread = &kHostThread;
constinit thread_local Block* t_running = nullptr;
constinit thread_local unsigned t_atomic_calls = 0;

Block::Block() = default;

Block::~Block() {
  while (idle_carriers_) delete std::exchange(idle_carriers_, idle_carriers_->next);
  carriers_kept.fetch_sub(kept_, std::memory_order_relaxed);  // as in trim()
}

void Block::trim() {
  carriers_kept.fetch_sub(kept_, std::memory_order_relaxed);  // it is a soft limit, which needs no ordering
  const unsigned kept = carriers_kept.load(std::memory_order_relaxed) < kIdleCarriersKeptInAll ? kIdleCarriersKept : 1;
  for (; idle_carrier_count_ > kept; --idle_carrier_count_) delete std::exchange(idle_carriers_, idle_carriers_->next);
  carriers_kept.fetch_add(kept_ = idle_carrier_count_, std::memory_order_relaxed);
}

void Block::reset(Launch& launch, std::uint64_t index) {
  const LaunchShape& shape = launch.shape;
  launch_ = &launch;
  launch_failed_ = &launch.failed;
  thread_count_ = live_ = shape.block.x * shape.block.y * shape.block.z;
  next_unstarted_ = 0;
  next_index_ = {0, 0, 0};
  ready_ = at_barrier_ = converging_ = with_leader_ = {};
  barrier_holding_ = 0;
  block_calls_ = 0;
  at_call_ = 0;
  switches_ = 0;
  yields_ = 0;
  progress();
  waiting_ = abandoned_ = gave_way_ = false;
  gives_way_ = shape.blocks_share_threads && !CPU_DEVICE_TSAN;
  info_ = {at(index, shape.grid), shape.block, shape.grid, nullptr, nullptr, leaders_make_calls()};

  // Calls that may throw come last, so that finish() finds the members above as at the start of a block.
  if (threads_.size() < thread_count_) threads_.resize(thread_count_);
  warps_.assign((thread_count_ + 31) / 32, Warp{~0u});
  if (thread_count_ % 32 != 0) warps_.back().live = (1u << thread_count_ % 32) - 1;
  info_.dynamic_shared = dynamic_shared_.reserve(std::max<std::size_t>(shape.shared_bytes, 1));
  info_.shared = shared_.reserve(bytes_of_places());
}

bool Block::start(Launch& launch, std::uint64_t index) {
  t_running = this;
  try {
    reset(launch, index);
    Carrier& first = take_carrier();
    native_.switch_to(first);  // returns when all threads have ended, or the block is abandoned or gives way
  } catch (const std::bad_alloc&) {
    abandoned_ = true;
    failure_ = BlockFailure{info_.index, {0, 0, 0}, words_or_none([] { return "no memory for a thread's stack"; })};
  }
  return end_turn();
}

bool Block::resume() {
  t_running = this;
  t_thread = current_;
  native_.switch_to(*current_->carrier);
  return end_turn();
}

/// The running thread waits, as all others do: the OS thread runs other blocks before it resumes this one.
void Block::give_way(std::uint64_t waited_ns) {
  waited_ns_ = waited_ns;
  gave_way_ = true;
  current_->carrier->switch_to(native_);
}

bool Block::end_turn() noexcept {
  t_running = nullptr;
  t_thread = &kHostThread;
  if (std::exchange(gave_way_, false)) return false;
  finish();
  return true;
}

/// Ends what the abandoned thread had begun.
void Block::end_unfinished(Thread& thread) noexcept {
  const Unfinished noted = std::exchange(thread.unfinished, {});
  if (noted.end != nullptr) noted.end(noted.self, noted.handle, noted.kind);
  for (; !thread.kept.empty(); thread.kept.pop_back()) {
    const Unfinished& latest = thread.kept.back();
    latest.end(latest.self, latest.handle, latest.kind);
  }
}

void Block::finish() noexcept {
  pool().note_waiting(waiting_, false);
  if (may_spin()) pool().note_spinning(-1);
  if (signal_ != 0) {
    auto words = words_or_none([this] { return describe_signal(signal_, signal_address_, current_->carrier); });
    failure_ = BlockFailure{info_.index, current_->index, std::move(words)};
    signal_ = 0;
  }
  if (abandoned_) {
    for (unsigned i = 0; i < next_unstarted_; ++i) {
      if (threads_[i].carrier != nullptr) end_unfinished(threads_[i]);
    }
    for (unsigned i = 0; i < next_unstarted_; ++i) delete std::exchange(threads_[i].carrier, nullptr);
  }
}

Carrier& Block::take_carrier() {
  if (!idle_carriers_) return *new Carrier(&Block::carry);
  --idle_carrier_count_;
  return *std::exchange(idle_carriers_, idle_carriers_->next);
}

/// The code that a carrier runs for its whole life: it runs threads of one block after the other.
void Block::carry(Carrier& self) {
  for (;;) t_running->run_threads(self);
}

/// Runs threads one after the other on this stack. A thread that suspends keeps the stack until it resumes.
void Block::run_threads(Carrier& self) {
  while (has_unstarted()) run_thread(next_unstarted_++, self);
  self.next = std::exchange(idle_carriers_, &self);
  ++idle_carrier_count_;
  resume_next(self);
}

void Block::run_thread(unsigned linear, Carrier& self) {
  Thread& thread = threads_[linear];
  thread.index = next_index_;
  if (++next_index_.x == info_.block_dim.x) {
    next_index_.x = 0;
    if (++next_index_.y == info_.block_dim.y) next_index_.y = 0, ++next_index_.z;
  }
  thread.linear = linear;
  thread.block = &info_;
  thread.carrier = &self;
  thread.frame = nullptr;
  thread.waits = Waits::nothing;
  thread.sleep_ended_ns = 0;
  thread.block_calls = 0;
  thread.lanes_call = nullptr;
  current_ = &thread;
  t_thread = &thread;
  std::string what;
  try {
    launch_->body();
    end_thread(thread);
    return;
  } catch (const std::exception& error) {
    what = words_or_none([&] { return std::string("an exception left the kernel: ") + error.what(); });
  } catch (...) {
    what = words_or_none([] { return "an exception left the kernel that is no std::exception"; });
  }
  fail(std::move(what));
}

void Block::end_thread(Thread& thread) {
  if (thread.block_calls != block_calls_) fail_outside_block_call("ends");
  if (warps_[thread.linear / 32].in_calls != 0) check_lanes_calls("ends");
  thread.carrier = nullptr;
  progress();
  --live_;
  Warp& warp = warps_[thread.linear / 32];
  warp.live &= ~(1u << thread.linear % 32);
  if (!at_barrier_.empty() && at_barrier_.size() == live_) release_barrier();
  for (unsigned lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {  // these may have waited for this thread
    const unsigned mask = lane_thread(thread.linear / 32, static_cast<unsigned>(__builtin_ctz(lanes))).mask;
    if ((warp.waiting & lanes & -lanes) && warp_complete(thread.linear / 32, mask))
      finish_warp(thread.linear / 32, mask);
  }
}

/// The running thread waits: other threads run until one of them has put it into the ready queue again.
void Block::suspend(Waits reason) {
  prepare_to_wait(reason);
  resume_next(*current_->carrier);
}

/// Switches from `from`, on which no thread runs for now, to a thread that can run.
void Block::resume_next(Carrier& from) {
  if (has_unstarted()) {
    Carrier* fresh = nullptr;
    try {
      fresh = &take_carrier();
    } catch (const std::bad_alloc&) {
      fail(words_or_none([] {
        return "no memory for the stacks of the block's threads: see vm.max_map_count and the limits in "
               "cpu_device/README.md";
      }));
    }
    ++switches_;
    from.switch_to(*fresh);
    return;
  }
  if (ready_.empty() && !converging_.empty()) release_converged();
  if (!ready_.empty()) {
    Thread& next = next_ready();
    if (next.carrier == &from) return;
    if (next.frame != nullptr) next.carrier->set_frame(std::exchange(next.frame, nullptr));
    ++switches_;
    from.switch_to(*next.carrier, next.result);
    return;
  }
  if (live_ == 0) {
    from.switch_to(native_);
  } else {
    fail_by_deadlock(from);
  }
}

void Block::yield() {
  if (launch_->failed.load(std::memory_order_relaxed)) abandon(*current_->carrier);
  if (++yields_ == kSpinYields) pool().note_spinning(+1);
  if (gives_way_ && !has_unstarted() && idle_turns_ >= ready_.size()) give_way(0);  // it may spin for another block
  if (!has_unstarted() && ready_.empty() && converging_.empty()) return;
  cycle_turns_ = 0;
  cycle_waited_ns_ = kNoCycle;
  Thread& thread = *current_;
  ready_.push(thread);
  if (++idle_turns_ > 2 * ready_.size() && !has_unstarted()) release_converged();
  resume_next(*thread.carrier);
}

void Block::relax(std::uint64_t waited_ns, const Bell* bell) {
  if (launch_->failed.load(std::memory_order_relaxed)) abandon(*current_->carrier);
  ++cycle_turns_;
  ++idle_turns_;
  if (waited_ns < cycle_waited_ns_) cycle_waited_ns_ = waited_ns;
  if (!has_unstarted() && cycle_turns_ > ready_.size()) {  // each thread that can run has had a turn, and waits
    const std::uint64_t cycle_ns = cycle_waited_ns_;
    cycle_turns_ = 0;
    cycle_waited_ns_ = kNoCycle;
    if (!converging_.empty()) {
      release_converged();
    } else if (gives_way_) {
      give_way(cycle_ns);
    } else {
      pool().note_waiting(waiting_, cycle_ns >= kYieldAfterNs);
      const bool alone = ready_.empty();  // else others wait for something else
      if (bell == nullptr || !alone || !sleep_until_rung(*bell, cycle_ns))
        back_off(cycle_ns, waiting_ ? pool().waiting_per_processor() : 0);
    }
  }
  if (!has_unstarted() && ready_.empty()) return;
  Thread& thread = *current_;
  ready_.push(thread);
  resume_next(*thread.carrier);
}

void Block::nanosleep(std::uint64_t duration_ns) {
  constexpr std::uint64_t kSameWaitNs = 10'000;
  Thread& thread = *current_;
  const std::uint64_t start_ns = clock_ns();
  if (start_ns - thread.sleep_ended_ns > kSameWaitNs)
    thread.sleep_began_ns = start_ns;  // a new wait begins; a loop of short sleeps is one wait
  std::uint64_t now_ns = start_ns;
  do {
    relax(now_ns - thread.sleep_began_ns);
    now_ns = clock_ns();
  } while (now_ns - start_ns < duration_ns);
  thread.sleep_ended_ns = now_ns;
}

}  // namespace cpu_device::detail
