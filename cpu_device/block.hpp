#pragma once
/// @file One block: schedules its threads on the OS thread that runs it. See README.md for the rules.

#include "cpu_device/detail/block_shared.hpp"
#include "cpu_device/thread.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cpu_device::detail {

struct Launch;

/// What goes on after a thread has come to a meeting: a frame of cpu_device_meet(), and what that returns there.
struct NextFrame {
  void* frame;
  const void* result;
};

/// Memory that the threads of a block share. It is uninitialised, so that pages which no kernel touches take none.
class SharedMemory {
 public:
  /// Ensures that there are `bytes`, and returns their address, aligned to 128 bytes. What was there may be lost.
  /// Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(operator new (bytes, std::align_val_t{kBlockSharedAlignment})));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { operator delete (memory, std::align_val_t{kBlockSharedAlignment}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

/// What went wrong in a block, and in which thread.
struct BlockFailure {
  uint3 block;
  uint3 thread;
  std::string what;  ///< empty: there was no memory for the text
};

/// The text that `make` returns; empty if there is no memory for it.
template <class Make>
std::string words_or_none(Make make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

/// Runs blocks, one after another. Each OS thread that runs blocks has one, or several whose blocks take turns.
class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs block `index` of the launch until it ends, or gives way because all its threads wait, if blocks of the launch
  /// share threads. Returns true if it has ended.
  bool start(Launch& launch, std::uint64_t index);
  /// Runs a block that has given way. Returns true if it has ended.
  bool resume();
  /// How long the block that has given way has waited: that of its threads which has waited the shortest.
  std::uint64_t waited_ns() const { return waited_ns_; }
  /// True if its threads have used so many atomics that they may be waiting for another block.
  bool may_spin() const { return yields_ >= kSpinYields; }
  /// Why the block was abandoned, or nothing, after its end.
  std::optional<BlockFailure> take_failure() { return std::exchange(failure_, std::nullopt); }
  /// Frees the stacks that the next block probably does not need.
  void trim();

  // The running thread calls these.
  unsigned converge(const void* site);
  inline void begin_block_call(const char* name);
  bool begin_lanes_call(unsigned mask, const char* name);
  void end_lanes_call();
  const void* meet(Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other);
  NextFrame meet_at(void* frame, Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other);
  void hand_result(unsigned mask, const void* result, std::size_t bytes);
  std::uint64_t switches() const { return switches_; }
  void yield();
  void relax(std::uint64_t waited_ns, const Bell* bell = nullptr);
  void nanosleep(std::uint64_t duration_ns);
  Thread& current() { return *current_; }

  /// A signal handler calls this: the running thread caused the signal. Does not return.
  [[noreturn]] void fail_by_signal(int signal, const void* address) noexcept;

 private:
  struct Warp {
    unsigned live = 0;        ///< lanes that have not ended
    unsigned waiting = 0;     ///< lanes that wait for others in their masks
    unsigned at_barrier = 0;  ///< lanes that wait at the block's barrier
    unsigned in_calls = 0;    ///< lanes that are in a call of a group of lanes
  };
  static constexpr unsigned kSpinYields = 16;  ///< after a thousand atomics
  static constexpr std::uint64_t kNoCycle = std::numeric_limits<std::uint64_t>::max();

  void reset(Launch& launch, std::uint64_t index);
  static void carry(Carrier& self);
  void run_threads(Carrier& self);
  void run_thread(unsigned linear, Carrier& self);
  void end_thread(Thread& thread);
  Carrier& take_carrier();
  inline void prepare_to_wait(Waits reason);
  void suspend(Waits reason);
  inline Thread& next_ready();
  void resume_next(Carrier& from);
  void release_barrier();
  Thread& lane_thread(unsigned warp, unsigned lane) { return threads_[warp * 32 + lane]; }
  bool warp_complete(unsigned warp, unsigned mask);
  void finish_warp(unsigned warp, unsigned mask);
  bool arrive(Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other);
  bool arrive_at_barrier(bool predicate);
  bool arrive_at_warp_operation(Meeting operation, unsigned mask, std::uint64_t value, std::uint64_t other);
  bool arrive_at_block_call(const char* name);
  bool arrive_at_lanes_call(unsigned mask, const char* name);
  void hand_result_to_lanes(unsigned mask, const void* result, std::size_t bytes);
  void release_converged();
  bool has_unstarted() const { return next_unstarted_ < thread_count_; }
  void progress() { cycle_turns_ = 0, cycle_waited_ns_ = kNoCycle, idle_turns_ = 0; }

  inline void check_before_meeting();
  void begin_next_block_call(const char* name);
  void check_lanes_calls(const char* does);
  inline void check_lanes_at_meeting();
  void check_same_lanes_call(const Thread& other);
  void check_same_operation(unsigned mask, Meeting operation);

  [[noreturn]] void fail(std::string what);
  template <class Words>
  [[noreturn]] void fail_by_part(Words what);
  [[noreturn]] void fail_outside_block_call(const char* does);
  [[noreturn]] void fail_in_lanes_call(const char* others);
  void fail_by_deadlock(Carrier& from);
  void abandon(Carrier& from);
  std::string describe_deadlock() const;
  static void end_unfinished(Thread& thread) noexcept;
  bool end_turn() noexcept;
  void finish() noexcept;
  void give_way(std::uint64_t waited_ns);

  Carrier native_;  ///< the OS thread's own stack
  Carrier* idle_carriers_ = nullptr;
  unsigned idle_carrier_count_ = 0;
  unsigned kept_ = 0;  ///< idle carriers that this block has counted in the process's total
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  SharedMemory dynamic_shared_;
  SharedMemory shared_;  ///< for block_shared()

  Launch* launch_ = nullptr;
  const std::atomic<bool>* launch_failed_ = nullptr;
  BlockInfo info_;
  Thread* current_ = nullptr;
  unsigned thread_count_ = 0;
  unsigned next_unstarted_ = 0;
  uint3 next_index_{0, 0, 0};  ///< threadIdx of the next thread to start
  unsigned live_ = 0;
  ThreadQueue ready_;
  ThreadQueue at_barrier_;
  ThreadQueue converging_;
  BarrierCount barrier_count_{0, 0};
  int barrier_holding_ = 0;
  std::uint64_t block_calls_ = 0;     ///< the largest Thread::block_calls
  const char* block_call_ = nullptr;  ///< name of the latest of these calls
  unsigned at_call_ = 0;              ///< number of threads that have arrived at a call which the leader is to make
  ThreadQueue with_leader_;           ///< those of them that are not the leader
  std::uint64_t switches_ = 0;

  unsigned cycle_turns_ = 0;  ///< relax() calls in a row; in a cycle each thread that can run has a turn
  std::uint64_t cycle_waited_ns_ = kNoCycle;
  unsigned idle_turns_ = 0;  ///< the same, but yield() calls count too
  unsigned yields_ = 0;      ///< number of yield() calls since the block began
  bool waiting_ = false;     ///< true if the pool was told that this block leaves its processor unused

  bool gives_way_ = false;  ///< true if this block shares its OS thread with others
  bool gave_way_ = false;
  std::uint64_t waited_ns_ = 0;

  bool abandoned_ = false;
  std::optional<BlockFailure> failure_;
  int signal_ = 0;
  const void* signal_address_ = nullptr;
};

/// The running thread is about to wait.
void Block::prepare_to_wait(Waits reason) {
  current_->waits = reason;
  progress();
  if (launch_failed_->load(std::memory_order_relaxed)) abandon(*current_->carrier);  // relaxed: it guards no data
}

/// Makes the next thread that can run the running one.
Thread& Block::next_ready() {
  Thread& next = ready_.pop();
  if (const Thread* later = ready_.front()) __builtin_prefetch(later->frame);
  next.waits = Waits::nothing;
  current_ = &next;
  t_thread = &next;
  return next;
}

void Block::begin_block_call(const char* name) {
  if (++current_->block_calls != block_calls_ || name != block_call_) begin_next_block_call(name);
}

/// The running thread is about to meet its block. Fails if others cannot come, as they are in another call.
void Block::check_before_meeting() {
  if (current_->block_calls != block_calls_) fail_outside_block_call("waits at a barrier");
  if (warps_[current_->linear / 32].in_calls != 0) check_lanes_calls("waits at a barrier");
}

/// Notes that the running thread meets lanes of its warp. Fails if lanes of its call's group have ended.
void Block::check_lanes_at_meeting() {
  Thread& thread = *current_;
  if (thread.lanes_call == nullptr) return;
  thread.lanes_met = true;
  if ((thread.lanes_mask & ~warps_[thread.linear / 32].live) != 0) fail_in_lanes_call("have ended");
}

/// The block that this OS thread runs now; null between blocks and on host threads. Each socket call reads it several
/// times (CMakeLists.txt). In a program, such a read is a load, since the linker knows the address. In a shared
/// library, it is a call, like each access to __shared__ memory. The TLS model initial-exec would save the call. But
/// then all thread-local memory of the library would have to fit in the memory that the process has left for libraries
/// that are loaded while it runs: about 1.6 KiB, so dlopen() would refuse.
extern constinit thread_local Block* t_running;

}  // namespace cpu_device::detail
