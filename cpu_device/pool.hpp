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

/// One grid on its way.
struct Launch {
  LaunchShape shape;
  std::string name;  ///< or empty, then that of the function below
  const void* kernel = nullptr;
  std::function<void()> body;
  std::shared_ptr<StreamState> stream;
  std::uint64_t blocks = 0;
  std::uint64_t number = 0;                              ///< counted from the process's first
  std::list<std::shared_ptr<Launch>>::iterator unended;  ///< where Pool::unended_ has it
  std::atomic<std::uint64_t> next{0};                    ///< the first block that no worker has taken
  std::atomic<std::uint64_t> ended{0};                   ///< blocks that have ended, or will never start
  std::atomic<bool> failed{false};
  std::shared_ptr<Launch> next_runnable;  ///< the pool's mutex guards it

  std::string kernel_name() const;
};

/// Launches that run one after the other; the first one runs. The pool's mutex guards it.
struct LaunchQueue {
  std::list<std::shared_ptr<Launch>> launches;
};

/// What the pool's mutex guards for a stream.
struct StreamState {
  explicit StreamState(std::shared_ptr<LaunchQueue> its_queue) : queue(std::move(its_queue)) {}

  const pid_t process = getpid();
  const std::shared_ptr<LaunchQueue> queue;  ///< perhaps of other streams too
  std::uint64_t unended = 0;                 ///< its launches in the queue
  std::optional<KernelFault> fault;
  std::condition_variable ended;
};

/// What a handler runs on when a thread's stack has overflowed. One per OS thread that runs blocks.
class SignalStack {
 public:
  SignalStack();  ///< only allocates: where that fails the thread is not started
  ~SignalStack();
  SignalStack(SignalStack&&) noexcept = default;
  SignalStack& operator=(SignalStack&&) = delete;
  void install() noexcept;  ///< for the calling thread, which then also destroys it

 private:
  std::unique_ptr<std::byte[]> memory_;
  bool installed_ = false;
};

/// Blocks run on as many OS threads as there are processors. One more starts whenever a resident block waits in relax()
/// or __nanosleep(), and where none has ended for a while: the resident ones may be waiting for those that are pending.
/// That while is 2 ms where a block may be spinning on atomics, else it grows with what has been started in this way.
class Pool {
 public:
  Pool();
  /// For a child of a process whose pool this is: with the same shape.
  static Pool* of_child(const Pool& parents);

  /// Throws std::system_error or std::bad_alloc where no thread can be started that the launch needs; then nothing is
  /// queued.
  void enqueue(std::shared_ptr<Launch> launch);
  void wait(StreamState& stream);
  bool idle(StreamState& stream);
  std::optional<KernelFault> take_fault(StreamState& stream);

  // device_shape.cpp
  void set_shape(const DeviceShape& shape);
  /// Waits until the launch's stream has room for it; the lock is the one that all launches of the shape need.
  [[nodiscard]] std::unique_lock<std::mutex> wait_for_room(const Launch& launch);
  DeviceShape shape();
  std::shared_ptr<LaunchQueue> queue_of_new_stream();  ///< of the shape's, one that the fewest streams have
  /// Waits for the launches that were made before, so long; true if all have ended.
  bool wait_for_launches(std::uint64_t wait_max_ns);
  bool any_launch();
  WaitingBlocks waiting_blocks();
  std::string describe_launches();

  /// Of a resident block: it leaves its processor unused from here on; it does not any more.
  void block_waits();
  void block_resumes();
  /// Resident blocks that wait, for each processor.
  std::uint64_t waiting_per_processor() const;
  /// A resident block may be spinning on atomics: +1, and -1 when it has ended.
  void note_spinning(int change) { spinning_.fetch_add(change, std::memory_order_relaxed); }  // only a hint

 private:
  using Lock = std::unique_lock<std::mutex>;

  void worker_main(SignalStack signal_stack);
  void monitor_main();
  bool take_block(Lock& lock, std::shared_ptr<Launch>& launch, std::uint64_t& index);
  bool crowded() const { return busy_.load(std::memory_order_seq_cst) > processors_; }
  void run_blocks(Block& block, Launch& launch, std::uint64_t index);
  KernelFault fault_of(const Launch& launch, const BlockFailure& failure) const;
  void report(Launch& launch, const BlockFailure& failure);
  void end_blocks(Launch& launch, std::uint64_t count);
  void end_launch(Launch& launch);
  void drop(Lock& lock, StreamState& stream, std::list<std::shared_ptr<Launch>>& dropped);
  void start(Lock& lock, std::shared_ptr<Launch> launch);
  void pop_runnable(Lock& lock);
  std::uint64_t dispatch(Lock& lock, std::uint64_t beyond, std::uint64_t taken_care_of = 0);
  void prepare(Lock& lock);
  void start_worker(Lock& lock);
  bool try_start_worker(Lock& lock) noexcept;
  std::uint64_t pending(Lock& lock) const;

  std::mutex launching_;  ///< one launch at a time, in a shape where they wait
  const std::int64_t processors_;
  const KernelFault no_memory_;  ///< copying it allocates nothing
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable monitor_;
  std::condition_variable some_launch_ended_;
  DeviceShape shape_;
  std::vector<std::shared_ptr<LaunchQueue>> queues_;  ///< those that streams share
  std::size_t next_queue_ = 0;
  std::list<std::shared_ptr<Launch>> unended_;  ///< in the order of their numbers
  std::uint64_t launches_made_ = 0;
  /// Launches with blocks that no worker has taken. They are linked among themselves: a worker that starts a stream's
  /// next launch allocates nothing.
  std::shared_ptr<Launch> first_runnable_;
  Launch* last_runnable_ = nullptr;
  std::atomic<std::uint64_t> runnable_count_{0};
  /// Workers at work or called to it, without those whose block waits. Where it is below the number of processors
  /// nothing is pending: each function that lowers it or adds work sees to that.
  std::atomic<std::int64_t> busy_{0};
  std::atomic<std::int64_t> waiting_{0};
  std::atomic<std::uint64_t> blocks_ended_{0};
  std::atomic<int> spinning_{0};
  std::uint64_t permits_ = 0;  ///< for workers that have been called and have not come yet
  std::uint64_t idle_ = 0;     ///< workers that wait for a call, or have just been started and will
  std::uint64_t workers_ = 0;
  std::atomic<std::uint64_t> in_blocks_{0};  ///< workers that run a block
  bool monitored_ = false;
};

/// The process's pool, made when first needed. It is never destroyed: blocks may still run while the process exits. A
/// process that was forked has one of its own, because it has none of the parent's threads.
Pool& pool();

/// CLOCK_MONOTONIC, for kernels and hosts alike.
std::uint64_t clock_ns() noexcept;

/// Waits shorter than this cost nothing but a pause; longer ones let other OS threads run.
inline constexpr std::uint64_t kYieldAfterNs = 5'000;
/// `waiting_per_processor`: how many more wait for a turn like this one.
void back_off(std::uint64_t waited_ns, std::uint64_t waiting_per_processor) noexcept;

std::string to_string(const uint3& index);
std::string describe_signal(int signal, const void* address, const Carrier* carrier);
/// The demangled name of the function at `address`, or the address where the program has been stripped.
std::string function_name(const void* address);

/// Makes faults in kernels end the block instead of the process; all others reach the handlers that were there before.
void install_fault_handlers();

}  // namespace cpu_device::detail
