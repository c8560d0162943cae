#include "gpusock/cuda/gpu.hpp"

#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/peer_access.hpp"

#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

namespace gpusock::cudart {

namespace {

struct Gpus {
  static Gpus& get() {
    static auto* const gpus = new Gpus;
    return *gpus;
  }

  std::mutex mutex;
  std::map<int, std::unique_ptr<Gpu>> by_number;
};

}  // namespace

Gpu& Gpu::get(int number) {
  Gpus& gpus = Gpus::get();
  const std::lock_guard lock(gpus.mutex);
  std::unique_ptr<Gpu>& gpu = gpus.by_number[number];
  if (gpu == nullptr) gpu = std::make_unique<Gpu>(number);
  return *gpu;
}

std::vector<Gpu*> Gpu::all() {
  Gpus& gpus = Gpus::get();
  const std::lock_guard lock(gpus.mutex);
  std::vector<Gpu*> found;
  for (const auto& [number, gpu] : gpus.by_number) found.push_back(gpu.get());
  return found;
}

cudaStream_t Gpu::copy_stream() {
  if (!copies_) copies_.emplace(streams, Streams::Use::copies);
  return copies_->get();
}

void Gpu::prepare_copies() {
  const std::lock_guard lock(copying_);
  copy_stream();
}

void* Gpu::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const CurrentGpu current(number);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), ENOMEM, "allocating " + std::to_string(bytes) + " bytes of device memory");
  try {
    zero(memory, bytes);
  } catch (const Error&) {
    taken(cudaFree(memory));
    throw;
  }
  return memory;
}

/// Uses the stream for copies: on the default stream the zeros could come after what other streams write.
void Gpu::zero(void* memory, std::size_t bytes) {
  const CurrentGpu current(number);
  const std::lock_guard lock(copying_);
  check(cudaMemsetAsync(memory, 0, bytes, copy_stream()), ENOMEM, "zeroing device memory");
  check(cudaStreamSynchronize(copy_stream()), ENOMEM, "zeroing device memory");
}

void Gpu::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  const CurrentGpu current(number);
  const std::lock_guard lock(copying_);
  const std::string what = "copying " + std::to_string(bytes) + " bytes";
  check(cudaMemcpyAsync(to, from, bytes, kind, copy_stream()), EFAULT, what);
  check(cudaStreamSynchronize(copy_stream()), EFAULT, what);
}

bool Gpu::free_if_quiet(const std::function<void()>& free_memory) {
  const CurrentGpu current(number);  // cudaFree and cudaFreeHost may wait for the current GPU's kernels
  std::vector<Gpu*> gpus = PeerAccess::get().those_that_reach(number);
  gpus.push_back(this);
  return while_quiet(gpus, free_memory);
}

bool while_quiet(const std::vector<Gpu*>& gpus, const std::function<void()>& action) {
  std::vector<std::unique_lock<std::shared_mutex>> no_launches;
  for (Gpu* gpu : gpus) {
    no_launches.push_back(gpu->kernels.try_hold_launches());
    if (!no_launches.back().owns_lock() || gpu->streams.any_kernel_runs()) return false;
  }
  action();
  return true;
}

}  // namespace gpusock::cudart
