#pragma once
/// @file Makes a GPU ready for kernels before they are launched, so that no launch waits for kernels that run.

#include "gpusock/cuda/streams.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>
#include <vector>

namespace gpusock::cudart {

/// In two cases a launch waits for all running kernels: the new kernel has not been loaded yet (lazy loading), or it
/// needs a larger stack than the GPU has set up. A running kernel that waits for the new one then never ends. So the
/// first launch of a kernel loads all kernels of its library (nvcc makes one of each .cu file) and sets up the largest
/// stack of them, while no kernel runs.
class Kernels {
 public:
  explicit Kernels(Streams& streams) : streams_(streams) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  /// Launches a kernel on the current GPU by calling `start`. If the GPU must first be made ready for it, and kernels
  /// run, waits until they end, up to patience_ns(). Throws Error: (EBUSY) they have not ended by then, (EINVAL) CUDA
  /// does not have the kernel.
  template <class Start>
  cudaError_t launch(const void* symbol, Start start) {
    const std::shared_lock ready = make_ready(symbol);
    return start();
  }

  /// No launch begins while the result lives and owns the lock. It does not own the lock if a launch is under way,
  /// which may wait for room in a stream's queue.
  [[nodiscard]] std::unique_lock<std::shared_mutex> try_hold_launches() {
    return std::unique_lock(mutex_, std::try_to_lock);
  }

  /// True if CUDA loads kernels lazily, or the driver does not say: lazy loading is its default.
  bool loads_lazily() const;

  /// How long a launch waits until no kernel runs: 5 s. Tests shorten it.
  static std::atomic<std::uint64_t>& patience_ns();

 private:
  using Handles = std::vector<cudaKernel_t>;

  std::shared_lock<std::shared_mutex> make_ready(const void* symbol);
  bool try_make_ready(const void* symbol, cudaKernel_t kernel);
  Handles library_of(cudaKernel_t kernel) const;
  std::size_t load(cudaKernel_t kernel) const;

  Streams& streams_;
  std::shared_mutex mutex_;  ///< launches share it; loading has it alone, so that no kernel starts meanwhile
  std::unordered_set<const void*> ready_;
  std::unordered_set<cudaKernel_t> loaded_;  ///< kernels that are loaded and have their stacks
};

}  // namespace gpusock::cudart
