#pragma once
/// @file The process's OS threads that run blocks, and which block each takes next.

#include "cpu_device/block.hpp"
#include "cpu_device/device_shape.hpp"
#include "cpu_device/launch.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cpu_device::detail {

/// A grid that was launched and has not ended.
struct Launch {
  LaunchShape shape;
  std::string name;  ///< the kernel's name if `kernel` is nullptr
  const void* kernel = nullptr;
  std::function<void()> body;
  std::shared_ptr<StreamState> stream;
  std::uint64_t blocks = 0;
  std::uint64_t number = 0;                              ///< the process's first launch has number 1
  std::list<std::shared_ptr<Launch>>::iterator unended;  ///< its entry in Pool::unended_
  std::atomic<std::uint64_t> next{0};                    ///< the first block that no worker has taken
  std::atomic<std::uint64_t> ended{0};                   ///< number of blocks that have ended or will never start
  std::atomic<bool> failed{false};
  std::shared_ptr<Launch> next_runnable;  ///< the pool's mutex guards it

  std::string kernel_name() const;
};

/// Launches that run one after the other; the first one runs. The pool's mutex guards it.
struct LaunchQueue {
  std::list<std::shared_ptr<Launch>> launches;
};

/// The state of a stream. The pool's mutex guards it.
struct StreamState {
  explicit StreamState(std::shared_ptr<LaunchQueue> its_queue) : queue(std::move(its_queue)) {}

  const pid_t process = getpid();
  const std::shared_ptr<LaunchQueue> queue;  ///< other streams may share it
  std::uint64_t unended = 0;                 ///< number of this stream's launches in the queue
  std::optional<KernelFault> fault;
  std::condition_variable ended;
};

/// The stack for signal handlers: a thread's own stack may have overflowed. Each OS thread that runs blocks has one.
class SignalStack {
 public:
  SignalStack();  ///< only allocates: if that fails, the thread is not started
  ~SignalStack();
  SignalStack(SignalStack&&) noexcept = default;
  SignalStack& operator=(SignalStack&&) = delete;
  void install() noexcept;  ///< on the calling thread, which must also destroy it

 private:
  std::unique_ptr<std::byte[]> memory_;
  bool installed_ = false;
};

/// Room for one of the blocks that share an OS thread.
struct Seat {
  Block block;
  std::shared_ptr<Launch> launch;  ///< the block's; null if the seat is free
  Seat* next = nullptr;
};

/// The seats of one OS thread. It lives as long as the thread, which never ends.
class Seats {
 public:
  /// False if none is free and there is no memory for another one.
  bool ensure_free() noexcept;
  /// Takes a free seat.
  Seat& take() noexcept;
  void give_back(Seat*& taken) noexcept;  ///< `taken`: the link to it in the list of taken ones
  Seat*& taken() noexcept { return taken_; }
  /// True if each taken seat's block waits, or may be spinning. Then there is room for another one.
  bool all_wait() const noexcept;
  void trim() noexcept;

 private:
  Seat first_;
  Seat* free_ = &first_;
  Seat* taken_ = nullptr;
};

/// Runs blocks on as many OS threads as there are processors. Another thread starts whenever a resident block waits in
/// relax() or __nanosleep(), and if no block has ended for some time: the resident blocks may then be waiting for
/// pending ones. That time is 2 ms if a block may be spinning on atomics. Otherwise it grows with the number of threads
/// that were started for this reason. An OS thread whose blocks share it takes pending blocks that share, too, before
/// another thread is started for them (turns.cpp).
class Pool {
 public:
  Pool();
  /// Makes the pool of a forked process, with the shape of its parent's pool.
  static Pool* of_child(const Pool& parents);

  /// Throws std::system_error or std::bad_alloc if the launch needs a thread and none can be started; then nothing is
  /// queued.
  void enqueue(std::shared_ptr<Launch> launch);
  void wait(StreamState& stream);
  bool idle(StreamState& stream);
  std::optional<KernelFault> take_fault(StreamState& stream);

  // Defined in device_shape.cpp.
  void set_shape(const DeviceShape& shape);
  /// Waits until the launch's stream has room for it. If the shape limits launches, returns the lock that each needs.
  [[nodiscard]] std::unique_lock<std::mutex> wait_for_room(const Launch& launch);
  DeviceShape shape();
  std::shared_ptr<LaunchQueue> queue_of_new_stream();  ///< the shape's queue that the fewest streams have, or a new one
  /// Waits at most `wait_max_ns` for the launches that were made before this call. True if all of them have ended.
  bool wait_for_launches(std::uint64_t wait_max_ns);
  bool any_launch();
  WaitingBlocks waiting_blocks();
  std::string describe_launches();

  /// Notes whether all blocks of the calling OS thread wait, so that its processor is unused. `noted`: what was noted
  /// of this thread before.
  void note_waiting(bool& noted, bool waits);
  /// Number of waiting resident blocks, divided by the number of processors.
  std::uint64_t waiting_per_processor() const;
  /// Counts the resident blocks that may be spinning on atomics: +1 when one begins to, -1 when it has ended.
  void note_spinning(int change) { spinning_.fetch_add(change, std::memory_order_relaxed); }  // only a hint

 private:
  using Lock = std::unique_lock<std::mutex>;

  void worker_main(SignalStack signal_stack);
  void monitor_main();
  bool take_block(Lock& lock, std::shared_ptr<Launch>& launch, std::uint64_t& index);
  bool take_sharing_block(std::shared_ptr<Launch>& launch, std::uint64_t& index);
  void run_by_turns(Seats& seats, std::shared_ptr<Launch> launch, std::uint64_t index);
  bool crowded() const { return busy_.load(std::memory_order_seq_cst) > processors_; }
  void run_blocks(Block& block, Launch& launch, std::uint64_t index);
  KernelFault fault_of(const Launch& launch, const BlockFailure& failure) const;
  void report(Launch& launch, const BlockFailure& failure);
  void end_blocks(Launch& launch, std::uint64_t count, bool takes_next);
  void end_launch(Launch& launch, bool takes_next);
  void drop(Lock& lock, StreamState& stream, std::list<std::shared_ptr<Launch>>& dropped);
  void start(Lock& lock, std::shared_ptr<Launch> launch);
  void pop_runnable(Lock& lock);
  std::uint64_t dispatch(Lock& lock, std::uint64_t beyond, std::uint64_t taken_care_of = 0);
  void prepare(Lock& lock);
  void begin_to_wait();
  void call_workers();
  void start_worker(Lock& lock);
  bool try_start_worker(Lock& lock) noexcept;
  std::uint64_t pending(Lock& lock) const;

  std::mutex launching_;  ///< if the shape limits launches, only one at a time may wait for room
  const std::int64_t processors_;
  const KernelFault no_memory_;  ///< copying it does not allocate
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable monitor_;
  std::condition_variable some_launch_ended_;
  DeviceShape shape_;
  std::vector<std::shared_ptr<LaunchQueue>> queues_;  ///< streams share these; empty: each has its own
  std::size_t next_queue_ = 0;
  std::list<std::shared_ptr<Launch>> unended_;  ///< in the order of their numbers
  std::uint64_t launches_made_ = 0;
  /// Launches with blocks that no worker has taken. They are linked by Launch::next_runnable, so that a worker that
  /// starts a stream's next launch does not allocate.
  std::shared_ptr<Launch> first_runnable_;
  Launch* last_runnable_ = nullptr;
  std::atomic<std::uint64_t> runnable_count_{0};
  /// Number of workers that work or have been called, without those whose blocks wait. If it is below the number of
  /// processors, no block is pending: each function that lowers it or adds work ensures that.
  std::atomic<std::int64_t> busy_{0};
  std::atomic<std::int64_t> waiting_{0};
  std::atomic<std::uint64_t> blocks_ended_{0};
  std::atomic<int> spinning_{0};
  std::uint64_t permits_ = 0;  ///< calls of workers that no worker has taken yet
  std::uint64_t idle_ = 0;     ///< number of workers that wait for a call, or were just started and will wait for one
  std::uint64_t workers_ = 0;
  std::atomic<std::uint64_t> in_blocks_{0};  ///< number of workers that run blocks
  std::atomic<std::uint64_t> resident_{0};   ///< number of blocks that these run
  bool monitored_ = false;
};

/// The process's pool, made when first needed. It is never destroyed: blocks may still run while the process exits. A
/// forked process has a pool of its own, because it has none of the parent's threads.
Pool& pool();

/// CLOCK_MONOTONIC in ns, the same in kernels and on host threads.
std::uint64_t clock_ns() noexcept;

/// A wait that is shorter than this only pauses the processor; a longer one lets other OS threads run.
inline constexpr std::uint64_t kYieldAfterNs = 5'000;
/// One turn of a wait that has lasted `waited_ns`, while on each processor `waiting_per_processor` blocks wait.
void back_off(std::uint64_t waited_ns, std::uint64_t waiting_per_processor) noexcept;
bool sleep_until_rung(const Bell& bell, std::uint64_t waited_ns) noexcept;

/// DeviceShape::leaders_make_calls.
bool leaders_make_calls() noexcept;

std::string to_string(const uint3& index);
std::string describe_signal(int signal, const void* address, const Carrier* carrier);
/// The demangled name of the function at `address`, or the address if the program has been stripped.
std::string function_name(const void* address);

/// Makes a fault in a kernel end its block instead of the process. Other faults reach the handlers installed before.
void install_fault_handlers();

}  // namespace cpu_device::detail
