#include "gpusock/cuda/streams.hpp"

#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/environment.hpp"

#include <algorithm>
#include <string>

namespace gpusock::cudart {

cudaStream_t Streams::take(Use use) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    const auto queues = static_cast<std::size_t>(hardware_queues());
    if (taken_.size() >= queues) {
      throw Error(
          ENOBUFS,
          "another stream on GPU " + std::to_string(gpu_) + ": its " + std::to_string(queues) +
              " hardware queues have one each, and kernels of streams that share a queue may wait for each other for "
              "ever. "
              "Set CUDA_DEVICE_MAX_CONNECTIONS (at most 32) before the first CUDA call, or use fewer contexts and "
              "streams in this process");
    }
    taken_.reserve(queues);
    free_.reserve(queues);
    const CurrentGpu current(gpu_);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), ENOMEM, "cudaStreamCreate");
    free_.push_back(stream);
  }
  taken_.push_back({free_.back(), use});
  free_.pop_back();
  return taken_.back().stream;
}

void Streams::give_back(cudaStream_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(taken_, [&](const Taken& each) { return each.stream == stream; });
  free_.push_back(stream);
}

bool Streams::any_kernel_runs() {
  const std::lock_guard lock(mutex_);
  return std::any_of(taken_.begin(), taken_.end(), [](const Taken& each) {
    return each.use == Use::kernels && taken(cudaStreamQuery(each.stream)) == cudaErrorNotReady;
  });
}

OwnStream::~OwnStream() {
  taken(cudaStreamSynchronize(stream_));
  streams_.give_back(stream_);
}

}  // namespace gpusock::cudart
