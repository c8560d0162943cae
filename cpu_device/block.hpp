#pragma once
/// @file One block: schedules its threads on the OS thread that runs it. See README.md for the rules.

#include "cpu_device/detail/builtins.hpp"
#include "cpu_device/fiber.hpp"
#include "cpu_device/launch.hpp"

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

struct CallBegun;
struct CallResult;
struct Launch;

enum class Waits : std::uint8_t { nothing, block_barrier, block_call, warp, convergence };
enum class WarpOperation : std::uint8_t { sync, shuffle, ballot, gather, call };

/// A thread that has started. Kernels read only its base class, ThreadInfo.
struct Thread : ThreadInfo {
  Thread* next = nullptr;      ///< in the ready queue, or in a queue of waiting threads
  Carrier* carrier = nullptr;  ///< null after the thread has ended
  Waits waits = Waits::nothing;

  // Arguments and results of the thread's warp operation.
  WarpOperation operation = WarpOperation::sync;
  unsigned mask = 0;
  unsigned source_lane = 0;
  std::uint64_t value = 0;
  std::uint64_t* values = nullptr;
  unsigned lanes = 0;
  const void* site = nullptr;

  // The thread's group calls (group_calls.cpp).
  std::uint64_t block_calls = 0;       ///< number of calls that it has begun with its block
  const char* lanes_call = nullptr;    ///< name of the call of lanes that it is in; null: none
  unsigned lanes_mask = 0;             ///< the lanes of that call's group
  bool lanes_met = false;              ///< true if it has come to a warp operation in that call
  const CallResult* result = nullptr;  ///< where it wants the result of the call for which it meets its group

  std::uint64_t sleep_began_ns = 0;  ///< start of a series of nanosleep() calls that follow one another closely
  std::uint64_t sleep_ended_ns = 0;

  Unfinished unfinished;
  std::vector<Unfinished> kept;  ///< the latest last
};

/// First in, first out.
class ThreadQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  unsigned size() const { return size_; }
  Thread* front() const { return head_; }
  void push(Thread& thread);
  Thread& pop();
  void append(ThreadQueue& other);  ///< leaves `other` empty

 private:
  Thread* head_ = nullptr;
  Thread* tail_ = nullptr;
  unsigned size_ = 0;
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

/// Runs blocks, one after another. Each OS thread that runs blocks has one.
class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs block `index` of the launch to its end. Returns nothing, or why the block was abandoned.
  std::optional<BlockFailure> run(Launch& launch, std::uint64_t index);
  /// Frees the stacks that the next block probably does not need.
  void trim();

  // The running thread calls these.
  BarrierCount barrier(bool predicate);
  void warp_meet(unsigned mask, WarpOperation operation, std::uint64_t value, unsigned source_lane,
                 std::uint64_t* values);
  unsigned converge(const void* site);
  CallBegun begin_block_call(const char* name);
  CallBegun begin_lanes_call(unsigned mask, const char* name);
  void end_lanes_call();
  bool arrive_at_block_call(const CallResult& result);
  bool arrive_at_lanes_call(unsigned mask, const CallResult& result);
  void hand_result_to_block();
  void hand_result_to_lanes(unsigned mask);
  std::uint64_t switches() const { return switches_; }
  void yield();
  void relax(std::uint64_t waited_ns);
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
  static constexpr std::uint64_t kNoCycle = std::numeric_limits<std::uint64_t>::max();

  void reset(Launch& launch, std::uint64_t index);
  static void carry(Carrier& self);
  void run_threads(Carrier& self);
  void run_thread(unsigned linear, Carrier& self);
  void end_thread(Thread& thread);
  Carrier& take_carrier();
  void suspend(Waits reason);
  void resume_next(Carrier& from);
  void switch_threads(Carrier& from, Carrier& to);
  void release_barrier();
  Thread& lane_thread(unsigned warp, unsigned lane) { return threads_[warp * 32 + lane]; }
  bool warp_complete(unsigned warp, unsigned mask);
  void finish_warp(unsigned warp, unsigned mask);
  void wait_for_leader(unsigned warp, unsigned mask, bool complete);
  void release_converged();
  void note_waiting(std::uint64_t waited_ns);
  bool has_unstarted() const { return next_unstarted_ < thread_count_; }
  void progress() { cycle_turns_ = 0, cycle_waited_ns_ = kNoCycle, idle_turns_ = 0; }

  void check_before_meeting();
  void check_lanes_calls(const char* does);
  void check_lanes_at_meeting();
  void check_same_lanes_call(const Thread& other);

  [[noreturn]] void fail(std::string what);
  template <class Words>
  [[noreturn]] void fail_by_part(Words what);
  [[noreturn]] void fail_outside_block_call(const char* does);
  [[noreturn]] void fail_in_lanes_call(const char* others);
  void fail_by_deadlock(Carrier& from);
  void abandon(Carrier& from);
  std::string describe_deadlock() const;
  static void end_unfinished(Thread& thread) noexcept;
  std::optional<BlockFailure> finish() noexcept;

  Carrier native_;  ///< the OS thread's own stack
  Carrier* idle_carriers_ = nullptr;
  unsigned idle_carrier_count_ = 0;
  unsigned kept_ = 0;  ///< idle carriers that this block has counted in the process's total
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::byte> dynamic_shared_;

  Launch* launch_ = nullptr;
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
  bool leaders_make_calls_ = false;   ///< DeviceShape
  unsigned at_call_ = 0;              ///< number of threads that have arrived at a call which the leader is to make
  ThreadQueue with_leader_;           ///< those of them that are not the leader
  std::uint64_t switches_ = 0;

  unsigned cycle_turns_ = 0;  ///< relax() calls in a row; in a cycle each thread that can run has a turn
  std::uint64_t cycle_waited_ns_ = kNoCycle;
  unsigned idle_turns_ = 0;  ///< the same, but yield() calls count too
  unsigned yields_ = 0;      ///< number of yield() calls since the block began
  bool waiting_ = false;     ///< true if the pool was told that this block leaves its processor unused

  bool abandoned_ = false;
  std::optional<BlockFailure> failure_;
  int signal_ = 0;
  const void* signal_address_ = nullptr;
};

/// The block that this OS thread runs now; null between blocks and on host threads. Each socket call reads it several
/// times (CMakeLists.txt). In a program, such a read is a load, since the linker knows the address. In a shared
/// library, it is a call, like each access to __shared__ memory. The TLS model initial-exec would save the call. But
/// then all thread-local memory of the library would have to fit in the memory that the process has left for libraries
/// that are loaded while it runs: about 1.6 KiB, so dlopen() would refuse.
extern constinit thread_local Block* t_running;

}  // namespace cpu_device::detail
