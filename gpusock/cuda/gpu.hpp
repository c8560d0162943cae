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
  /// Made when first asked for, and never destroyed: static contexts go at any time.
  static Gpu& get(int number);
  /// Those that were asked for.
  static std::vector<Gpu*> all();

  explicit Gpu(int gpu) : number(gpu), streams(gpu), kernels(streams) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Zeroed device memory; nullptr for no bytes. May wait for kernels that run. Throws Error (ENOMEM).
  void* allocate(std::size_t bytes);
  /// Zeroes device memory, and waits until that is done. Throws Error (ENOMEM).
  void zero(void* memory, std::size_t bytes);
  /// Copies, and waits until that is done. Not on the default stream: that would wait for kernels. Throws Error
  /// (EFAULT).
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
  /// Calls `free_memory` if that waits for no kernel, which means that none runs here or on a GPU that reaches this
  /// one's memory. True if it did.
  bool free_if_quiet(const std::function<void()>& free_memory);
  /// Makes the stream for copies, unless it is there. Throws Error as Streams::take() does.
  void prepare_copies();

  const int number;
  Streams streams;
  Kernels kernels;

 private:
  cudaStream_t copy_stream();

  std::mutex copying_;
  std::optional<OwnStream> copies_;
};

/// Calls `action` if no kernel runs on any of these GPUs, and lets none start meanwhile. True if it did.
bool while_quiet(const std::vector<Gpu*>& gpus, const std::function<void()>& action);

}  // namespace gpusock::cudart
