#pragma once
/// @file Copies between host memory and rings in a GPU's memory.

#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/gpu.hpp"
#include "host_proxy/memory/copier.hpp"

#include <cuda_runtime_api.h>

#include <vector>

namespace gpusock::cudart {

/// Copies with the GPU's copy engines, on streams that no kernel uses: one stream for each direction, like the engines.
class CudaCopier final : public proxy::Copier {
 public:
  explicit CudaCopier(Gpu& gpu) : gpu_(gpu) {}
  ~CudaCopier() override {
    const CurrentGpu current(gpu_.number);
    for (const OwnStream* stream : {&out_, &in_}) taken(cudaStreamSynchronize(stream->get()));
    for (Slot& slot : copies_) taken(cudaEventDestroy(slot.ended));
  }

  /// The kernel releases `committed` at system scope, the proxy acquires it, and then makes this call: so the bytes are
  /// in device memory before the engine is told to read them.
  Copy to_host(std::byte* to, const ringbuf::RingSpans& from) override {
    return start(out_.get(), [&](cudaStream_t stream) {
      const cudaError_t error = copy(to, from.first.data, from.first.bytes, cudaMemcpyDeviceToHost, stream);
      if (error != cudaSuccess) return error;
      return copy(to + from.first.bytes, from.second.data, from.second.bytes, cudaMemcpyDeviceToHost, stream);
    });
  }
  /// The event after the copy says that the bytes are in device memory. The proxy then releases `arrived`, at system
  /// scope, and the kernel acquires it before it reads them.
  Copy to_device(const ringbuf::RingSpans& to, const std::byte* from) override {
    return start(in_.get(), [&](cudaStream_t stream) {
      const cudaError_t error = copy(to.first.data, from, to.first.bytes, cudaMemcpyHostToDevice, stream);
      if (error != cudaSuccess) return error;
      return copy(to.second.data, from + to.first.bytes, to.second.bytes, cudaMemcpyHostToDevice, stream);
    });
  }

  State query(Copy which) override {
    if (which == kNotStarted) return State::failed;
    Slot& slot = copies_[which];
    const cudaError_t error = taken(cudaEventQuery(slot.ended));
    if (error == cudaErrorNotReady) return State::busy;
    slot.used = false;
    return error == cudaSuccess ? State::done : State::failed;
  }

 private:
  struct Slot {
    cudaEvent_t ended = nullptr;
    bool used = false;
  };
  static constexpr Copy kNotStarted = ~Copy{0};

  static cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return bytes == 0 ? cudaSuccess : cudaMemcpyAsync(to, from, bytes, kind, stream);
  }

  template <class Start>
  Copy start(cudaStream_t stream, Start start_copies) {
    const CurrentGpu current(gpu_.number);
    for (Copy which = 0;; ++which) {
      if (which == copies_.size() && !add_slot()) return kNotStarted;
      if (copies_[which].used) continue;
      const bool started = taken(start_copies(stream)) == cudaSuccess &&
                           taken(cudaEventRecord(copies_[which].ended, stream)) == cudaSuccess;
      // Copies without an event are waited for: their memory must not be used before they have ended.
      if (!started) taken(cudaStreamSynchronize(stream));
      copies_[which].used = started;
      return started ? which : kNotStarted;
    }
  }

  /// Adds a slot. Soon there are as many slots as copies are ever under way at a time.
  bool add_slot() {
    Slot slot;
    copies_.reserve(copies_.size() + 1);
    if (taken(cudaEventCreateWithFlags(&slot.ended, cudaEventDisableTiming)) != cudaSuccess) return false;
    copies_.push_back(slot);
    return true;
  }

  Gpu& gpu_;
  OwnStream out_{gpu_.streams, Streams::Use::copies};
  OwnStream in_{gpu_.streams, Streams::Use::copies};
  std::vector<Slot> copies_;  // a copy's name is its index
};

}  // namespace gpusock::cudart
