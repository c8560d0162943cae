#pragma once
/// @file What all contexts of a process share on one GPU.

#include "gpusock/cuda/kernels.hpp"
#include "gpusock/cuda/streams.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace gpusock::cudart {

struct Gpu {
  /// Returns the GPU `number`, made at the first call. It is never destroyed: static contexts may end at any time.
  static Gpu& get(int number);
  /// Returns all GPUs that get() has made.
  static std::vector<Gpu*> all();

  explicit Gpu(int gpu) : number(gpu), streams(gpu), kernels(streams) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Returns zeroed device memory; nullptr for 0 bytes. May wait for running kernels. Throws Error (ENOMEM).
  void* allocate(std::size_t bytes);
  /// Zeroes device memory, and waits until that is done. Throws Error (ENOMEM).
  void zero(void* memory, std::size_t bytes);
  /// Copies, and waits until that is done. Does not use the default stream, which would wait for kernels. Throws Error
  /// (EFAULT).
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
  /// Calls `free_memory` if no kernel runs on this GPU, or on a GPU that reaches this one's memory: then the call waits
  /// for no kernel. Returns true if it has called it.
  bool free_if_quiet(const std::function<void()>& free_memory);
  /// Makes the stream for copies if there is none yet. Throws Error as Streams::take() does.
  void prepare_copies();

  const int number;
  Streams streams;
  Kernels kernels;

 private:
  cudaStream_t copy_stream();

  std::mutex copying_;
  std::optional<OwnStream> copies_;
};

/// Calls `action` if no kernel runs on these GPUs, and lets none start meanwhile. Returns true if it has called it.
bool while_quiet(const std::vector<Gpu*>& gpus, const std::function<void()>& action);

}  // namespace gpusock::cudart
