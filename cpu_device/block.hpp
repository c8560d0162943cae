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

struct Launch;

enum class Waits : std::uint8_t { nothing, block_barrier, warp, convergence };
enum class WarpOperation : std::uint8_t { sync, shuffle, ballot, gather };

/// A thread that has started. Its first part is what kernels read.
struct Thread : ThreadInfo {
  Thread* next = nullptr;      ///< in the ready queue, or among those that wait
  Carrier* carrier = nullptr;  ///< null once it has ended
  Waits waits = Waits::nothing;

  // What it brings to a warp operation and takes away.
  WarpOperation operation = WarpOperation::sync;
  unsigned mask = 0;
  unsigned source_lane = 0;
  std::uint64_t value = 0;
  std::uint64_t* values = nullptr;
  unsigned lanes = 0;
  const void* site = nullptr;

  // The group calls that it makes (group_calls.cpp).
  std::uint64_t block_calls = 0;     ///< that it has begun with its block
  const char* lanes_call = nullptr;  ///< that it is in
  unsigned lanes_mask = 0;           ///< of that call's group
  bool lanes_met = false;            ///< it has come to an operation of the warp in that call

  std::uint64_t sleep_began_ns = 0;  ///< of a row of nanosleep() calls with nothing much between them
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
  void append(ThreadQueue& other);  ///< and leaves it empty

 private:
  Thread* head_ = nullptr;
  Thread* tail_ = nullptr;
  unsigned size_ = 0;
};

/// What went wrong in a block, and in which thread.
struct BlockFailure {
  uint3 block;
  uint3 thread;
  std::string what;  ///< empty: no memory was left, also not for words
};

/// The words that `make` puts together; empty where there is no memory for them.
template <class Make>
std::string words_or_none(Make make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

/// An OS thread has one of these and runs one block after another with it.
class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs block `index` of the launch to its end. Returns nothing, or why it had to be abandoned.
  std::optional<BlockFailure> run(Launch& launch, std::uint64_t index);
  /// Gives back stacks beyond those that the next block probably needs.
  void trim();

  // What the running thread calls.
  BarrierCount barrier(bool predicate);
  void warp_meet(unsigned mask, WarpOperation operation, std::uint64_t value, unsigned source_lane,
                 std::uint64_t* values);
  unsigned converge(const void* site);
  void begin_block_call(const char* name);
  bool begin_lanes_call(unsigned mask, const char* name);
  void end_lanes_call();
  void yield();
  void relax(std::uint64_t waited_ns);
  void nanosleep(std::uint64_t duration_ns);
  Thread& current() { return *current_; }

  /// Of a signal handler: the running thread did this; does not return.
  [[noreturn]] void fail_by_signal(int signal, const void* address) noexcept;

 private:
  struct Warp {
    unsigned live = 0;        ///< lanes that have not ended
    unsigned waiting = 0;     ///< lanes that wait for others of their masks
    unsigned at_barrier = 0;  ///< lanes that wait at the block's barrier
    unsigned in_calls = 0;    ///< lanes that are in a call of a group of lanes
  };
  static constexpr std::uint64_t kNoRound = std::numeric_limits<std::uint64_t>::max();

  void reset(Launch& launch, std::uint64_t index);
  static void carry(Carrier& self);
  void run_threads(Carrier& self);
  void run_thread(unsigned linear, Carrier& self);
  void end_thread(Thread& thread);
  Carrier& take_carrier();
  void suspend(Waits reason);
  void resume_next(Carrier& from);
  void release_barrier();
  Thread& lane_thread(unsigned warp, unsigned lane) { return threads_[warp * 32 + lane]; }
  bool warp_complete(unsigned warp, unsigned mask);
  void finish_warp(unsigned warp, unsigned mask);
  void release_converged();
  void note_waiting(std::uint64_t waited_ns);
  bool has_unstarted() const { return next_unstarted_ < thread_count_; }
  void progress() { round_turns_ = 0, round_waited_ns_ = kNoRound, idle_turns_ = 0; }

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
  uint3 next_index_{0, 0, 0};  ///< its threadIdx
  unsigned live_ = 0;
  ThreadQueue ready_;
  ThreadQueue at_barrier_;
  ThreadQueue converging_;
  BarrierCount barrier_count_{0, 0};
  int barrier_holding_ = 0;
  std::uint64_t block_calls_ = 0;     ///< the most that a thread has begun with the block
  const char* block_call_ = nullptr;  ///< the latest of them

  unsigned round_turns_ = 0;  ///< relax() calls in a row, nothing else between them
  std::uint64_t round_waited_ns_ = kNoRound;
  unsigned idle_turns_ = 0;  ///< the same, and yields
  unsigned yields_ = 0;      ///< since the block began
  bool waiting_ = false;     ///< the pool knows that this block leaves its processor unused

  bool abandoned_ = false;
  std::optional<BlockFailure> failure_;
  int signal_ = 0;
  const void* signal_address_ = nullptr;
};

/// The block that this OS thread runs now; null between blocks and on host threads. Each socket call reads it several
/// times (CMakeLists.txt): in a program by a load, since the linker knows its place there; in a shared library by a
/// call, as each access to __shared__ memory does. With a TLS model that saves the call (initial-exec), all of such a
/// library's thread-local memory would have to fit in what the process has left for libraries that are loaded while it
/// runs: some 1.6 KiB, so that dlopen() refuses.
extern constinit thread_local Block* t_running;

}  // namespace cpu_device::detail
