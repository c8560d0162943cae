#pragma once
/// @file What a test asks of the double of the CUDA runtime. See README.md.

#include "tests/support/cuda_double/symbols.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cuda_double {

inline constexpr int kGpus = 2;
inline constexpr std::size_t kStackBytes = 1024;  ///< of each thread, until a kernel or cudaDeviceSetLimit makes it
                                                  ///< more
inline constexpr unsigned kRegisters = 64 << 10;  ///< that the threads of a block share
inline constexpr std::size_t kStackBytesMax = 64 << 10;  ///< all threads that may be resident on a large GPU have 17 GB
inline constexpr unsigned kResidentBlocksMax = 128;      ///< of all kernels; later ones wait until one ends
inline constexpr std::size_t kQueuedMax = 1024;  ///< launches and copies in a hardware queue; the next launch waits
inline constexpr unsigned char kFresh = 0xA5;    ///< what new memory holds (its first MiB)

/// How the driver read the environment, at the first CUDA call of the process.
bool loads_lazily();
int hardware_queues();

/// Lazy or eager loading from here on, whatever the environment says. Kernels that are loaded stay so.
void set_lazy_loading(bool lazy);

/// From here on launches return when their kernels have ended, or at once, whatever CUDA_LAUNCH_BLOCKING says.
void set_launches_block(bool block);

/// Kernels that are in one library, as those of one .cu file, and the stack and the registers that each thread needs.
/// Others have a library each.
struct KernelFacts {
  const void* symbol;
  std::size_t stack_bytes = 0;
  unsigned registers = 0;
};
void describe_library(const std::vector<KernelFacts>& kernels);
/// Bytes of stack that each thread has now, on a GPU.
std::size_t stack_bytes(int gpu = 0);

/// The n-th call from here on (1: the next) fails once. 0: none. What frees or waits does its work, and then says that
/// it failed.
void fail_call(std::uint64_t n);
/// Calls since fail_call(), failed ones among them.
std::uint64_t calls_made();
/// The name of the call that failed; empty: none has.
std::string failed_call();

/// The error that ended the CUDA context, if one has; what the kernel did.
std::string fault();
/// As if the CUDA context were whole again.
void forget_fault();

/// Memory, streams and events that exist now, one each: "cudaMalloc 4096".
std::vector<std::string> left();

/// Who waits for whom, where a call or a kernel has waited for kernels that run for longer than the limit: first the
/// default, to write that to standard error and abort; a test puts its own in its place, which must end the wait.
/// nullptr: the default.
void on_hang(std::function<void(const std::string& who_waits_for_whom)> handler);
void set_hang_limit(std::chrono::milliseconds limit);  ///< 0: the default, 20 s
/// Waits until a call with this name waits for kernels that run.
void await_waiting_call(const std::string& name);
/// Waits until a call waits for the one with this name.
void await_call_that_waits_for(const std::string& name);

/// From here on cudaDeviceCanAccessPeer says so, and cudaDeviceEnablePeerAccess refuses where GPUs are apart. What was
/// enabled stays. At first they reach each other, unless GPUSOCK_TEST_PEERS is off.
void set_peers_reach_each_other(bool reach);

/// From here on the GPUs say that other processes can map their memory, or that they cannot. At first they can.
void set_shares_memory(bool shares);

/// Copies that were started and have not ended.
int copies_under_way();

/// Copies of cudaMemcpyAsync are held back while this lives, until a call waits for them.
class SlowCopies {
 public:
  SlowCopies();
  ~SlowCopies();
  SlowCopies(const SlowCopies&) = delete;
  SlowCopies& operator=(const SlowCopies&) = delete;
};

}  // namespace cuda_double
