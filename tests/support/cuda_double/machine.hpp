#pragma once
/// @file The machine behind the double: GPUs with hardware queues, the driver's lock, and who waits for whom.

#include "tests/support/cuda_double/double.hpp"
#include "tests/support/cuda_double/include/cuda.h"
#include "tests/support/cuda_double/include/cuda_runtime_api.h"

#include "cpu_device/device_shape.hpp"
#include "cpu_device/launch.hpp"
#include "host_proxy/base/descriptor.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cuda_double {

using Clock = std::chrono::steady_clock;

/// A kernel, a copy or a memset on its way. The machine's mutex guards it.
struct Operation {
  std::string name;
  CUstream_st* stream = nullptr;
  std::function<void()> run;
  bool is_copy = false;
  Clock::time_point since{};  ///< queued, or begun
  bool running = false;
  bool ended = false;
  bool awaited = false;  ///< by a call
};
using Work = std::shared_ptr<Operation>;

struct Kernel {
  std::string name;
  Binder bind = nullptr;
  std::size_t stack_bytes = 0;
  unsigned registers = 0;
  std::size_t shared_bytes_max = 48 << 10;
  CUlib_st* library = nullptr;
  std::array<bool, kGpus> loaded{};
};

/// The operations of one hardware queue run one after the other, whichever streams they are of.
struct Queue {
  std::deque<Work> waiting;
  Work running;
  std::thread thread;
};

struct Gpu {
  std::vector<std::unique_ptr<Queue>> queues;
  int streams_made = 0;
  std::size_t stack_bytes = kStackBytes;
  std::vector<std::function<void()>> late;  ///< what the legacy stream still has to do
  std::array<bool, kGpus> reaches{};        ///< whose memory its kernels may use besides its own
};

enum class Kind { device, pinned, registered };
struct Allocation {
  std::size_t bytes = 0;
  Kind kind = Kind::device;
  int gpu = 0;
  bool is_mapped = false;  ///< by cuMemMap: cudaFree() does not know it
};

/// What cuMemCreate() or an import gave.
struct Handle {
  gpusock::proxy::Descriptor file;
  std::size_t bytes = 0;
  int gpu = 0;
};
/// Of cuMemAddressReserve().
struct Reservation {
  std::size_t bytes = 0;
  gpusock::proxy::Descriptor file;  ///< what is mapped there
  int gpu = 0;
  bool was_mapped = false;
};

/// A thread that waits.
struct Waiting {
  std::string who;
  std::function<std::string()> for_what;  ///< called under the mutex
  Clock::time_point since = Clock::now();
};

using Lock = std::unique_lock<std::mutex>;

}  // namespace cuda_double

struct CUstream_st {
  int gpu = 0;
  int number = 0;
  int queue = 0;
  cuda_double::Work last;
};
struct CUevent_st {
  cuda_double::Work last;
};
struct CUkern_st : cuda_double::Kernel {};
struct CUfunc_st;  // a CUkern_st by another name
struct CUlib_st {
  std::vector<CUkern_st*> kernels;
};

namespace cuda_double {

class Machine {
 public:
  static Machine& get();

  /// The process's first call: the driver reads the environment.
  void initialize(Lock& lock);

  // Of calls, which hold the driver's lock.
  /// Waits for all that was started on this GPU. Whoever calls keeps the driver's lock.
  void wait_for_work(Lock& lock, int gpu, const std::string& call);
  /// The same of the GPUs that reach this one's memory.
  void wait_for_peers(Lock& lock, int gpu, const std::string& call);
  void wait_for(Lock& lock, const Work& work, const std::string& call);
  /// Waits until the stream's hardware queue has room for a launch. Whoever calls keeps the driver's lock.
  void wait_for_room(Lock& lock, const CUstream_st& stream, const std::string& call);
  /// Where launches block: waits until this one has ended. Whoever calls keeps the driver's lock.
  void end_launch(Lock& lock, const Work& work, const std::string& call);
  Work enqueue(Lock& lock, CUstream_st& stream, std::string name, bool is_copy, std::function<void()> run);
  void run_late(Lock& lock, int gpu);
  void load(Lock& lock, int gpu, Kernel& kernel, const std::string& call);
  void set_stack(Lock& lock, int gpu, std::size_t bytes, const std::string& call);
  CUkern_st* kernel_of(const void* symbol);
  /// What `address` is in; nullptr: ordinary host memory, or nothing.
  const Allocation* allocation_at(const void* address, std::size_t bytes, bool* whole = nullptr) const;

  std::mutex mutex;
  std::condition_variable changed;
  bool initialized = false;
  bool lazy = true;
  bool launches_block = false;  ///< CUDA_LAUNCH_BLOCKING
  int queues = 8;
  std::array<Gpu, kGpus> gpus;
  std::map<const void*, std::unique_ptr<CUkern_st>> kernels;
  std::list<CUlib_st> libraries;
  std::map<std::uintptr_t, Allocation> memory;
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle handles_made = 0;
  std::map<CUdeviceptr, Reservation> reservations;
  bool shares_memory = true;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::vector<std::unique_ptr<CUstream_st>> all_streams;  // their operations may outlive them
  cudaError_t sticky = cudaSuccess;
  std::string fault;
  int slow_copies = 0;
  bool peers_reach_each_other = true;

  // The driver's lock, and who waits.
  std::string holder;
  std::list<Waiting> waiting;
  /// Waits until `ready`; the watchdog knows of it.
  template <class Ready>
  void wait(Lock& lock, std::string who, std::function<std::string()> for_what, Ready ready) {
    if (ready()) return;
    const auto entry = waiting.insert(waiting.end(), {std::move(who), std::move(for_what)});
    changed.notify_all();
    changed.wait(lock, ready);
    waiting.erase(entry);
  }
  std::string running_work(int gpu) const;

  // Failures on purpose.
  std::uint64_t fail_at = 0;
  std::uint64_t calls = 0;
  std::string failed;

  // The watchdog.
  std::function<void(const std::string&)> hang_handler;
  std::chrono::milliseconds hang_limit{0};

  cpu_device::WaitingBlocks waiting_blocks;
  Clock::time_point blocks_stand_since{};

 private:
  void look_at_blocks();
  bool holds_back(const Queue& queue) const;  ///< True if the next one is a copy that SlowCopies holds back.
  void serve(Queue& queue);
  void run(Lock& lock, Queue& queue, const Work& work);
  void watch();
  std::string find_hang(std::chrono::milliseconds limit) const;
};

/// Each of the runtime's functions is one while it runs: it takes the driver's lock, unless it must fail.
class Call {
 public:
  enum class Effect { usual, frees_or_waits };
  explicit Call(std::string name, Effect effect = Effect::usual);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// What the call returns without doing anything, if so.
  bool ends() const { return outcome_ != cudaSuccess && effect_ == Effect::usual; }
  cudaError_t error() { return end(cudaSuccess); }
  /// What the call returns: notes an error for cudaGetLastError.
  cudaError_t end(cudaError_t error);

  /// Waits for all that was started, or for one operation without the driver's lock.
  void wait_for_work() { machine_.wait_for_work(lock_, gpu(), name_); }
  void wait_for_peers(int of) { machine_.wait_for_peers(lock_, of, name_); }
  void wait_without_driver(const Work& work);
  /// The driver's lock is given up.
  void release();

  int gpu() const;
  Machine& machine() { return machine_; }
  Lock& lock() { return lock_; }
  const std::string& name() const { return name_; }

 private:
  Machine& machine_ = Machine::get();
  std::string name_;
  Effect effect_;
  Lock lock_{machine_.mutex};
  cudaError_t outcome_ = cudaSuccess;
  bool holds_ = false;
};

/// The driver's function for virtual memory of this name; nullptr: there is none.
void* virtual_memory_function(std::string_view name);

extern thread_local int t_gpu;
extern thread_local bool t_has_context;
extern thread_local cudaError_t t_last_error;

}  // namespace cuda_double
