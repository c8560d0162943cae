// CUDA GPUs: shared memory is pinned host memory at one address for both sides; rings may be in the GPU's own.
#include "gpusock/context/context_impl.hpp"
#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/gpu.hpp"
#include "host_proxy/base/processors.hpp"

#if GPUSOCK_HAS_VERBS
#include "rdma/visibility.hpp"
#endif

#include <cuda_runtime_api.h>
#include <sched.h>
#include <time.h>

#include <cstring>
#include <string>
#include <vector>

namespace gpusock::detail {
namespace {

using cudart::check;
using cudart::CurrentGpu;
using cudart::Gpu;
using cudart::OwnStream;
using cudart::Streams;
using cudart::taken;

/// Copies by the GPU's copy engines, on streams of their own, which no kernel uses: one for each direction, as engines
/// are.
class CudaCopier final : public proxy::Copier {
 public:
  explicit CudaCopier(Gpu& gpu) : gpu_(gpu) {}
  ~CudaCopier() override {
    const CurrentGpu current(gpu_.number);
    for (const OwnStream* stream : {&out_, &in_}) taken(cudaStreamSynchronize(stream->get()));
    for (Slot& slot : copies_) taken(cudaEventDestroy(slot.ended));
  }

  /// The kernel's release of `committed`, at system scope, precedes the proxy's acquire of it, and that this call: the
  /// bytes are in device memory before the engine is told to read them.
  Copy to_host(std::byte* to, const ringbuf::RingSpans& from) override {
    return start(out_.get(), [&](cudaStream_t stream) {
      const cudaError_t error = copy(to, from.first.data, from.first.bytes, cudaMemcpyDeviceToHost, stream);
      if (error != cudaSuccess) return error;
      return copy(to + from.first.bytes, from.second.data, from.second.bytes, cudaMemcpyDeviceToHost, stream);
    });
  }
  /// The event that follows the copy says that the bytes are in device memory; the proxy then releases `arrived`, at
  /// system scope, and the kernel acquires it before it reads them.
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
      // What was started without an event is waited for: the memory may not be used before.
      if (!started) taken(cudaStreamSynchronize(stream));
      copies_[which].used = started;
      return started ? which : kNotStarted;
    }
  }

  /// There are soon as many as copies are ever under way at a time.
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

/// A launch with more dynamic shared memory has to be announced.
constexpr std::size_t kSharedBytesUnasked = 48 << 10;

class CudaPlatform final : public proxy::Platform {
 public:
  explicit CudaPlatform(int gpu) : gpu_(gpu) {
#if GPUSOCK_HAS_VERBS
    card_writes_ = rdma::visibility_of_card_writes(rdma::cuda_driver(), gpu);
#endif
  }

  void* allocate_shared(std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), ENOMEM,
          "pinning " + std::to_string(bytes) + " bytes of host memory (see ulimit -l; lower Options::sockets_max)");
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free_shared(void* memory, std::size_t) noexcept override { taken(cudaFreeHost(memory)); }

  void attach(void* memory, std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), ENOMEM,
          "pinning " + std::to_string(bytes) +
              " bytes of rings (see ulimit -l; lower Options::connections_max or ring_bytes)");
  }
  void detach(void* memory, std::size_t) noexcept override { taken(cudaHostUnregister(memory)); }

  /// Pinning memory may wait for running kernels, and a kernel may be waiting for the connection that it is for.
  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return false; }

  /// No processor can use it, and no process maps another's while kernels run.
  bool device_memory_is_mappable() const override { return false; }
  std::byte* allocate_device(std::size_t bytes) override {
    const CurrentGpu current(gpu_);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), ENOMEM,
          "allocating " + std::to_string(bytes) +
              " bytes of device memory for rings (lower Options::connections_max or "
              "ring_bytes, or set GPUSOCK_RING=host)");
    return static_cast<std::byte*>(memory);
  }
  void free_device(std::byte* memory) noexcept override { taken(cudaFree(memory)); }
  std::byte* proxy_address(std::byte* device_memory) const override { return device_memory; }
  bool reaches_device_memory_of(const Platform& other) const override {
    const auto* gpu = dynamic_cast<const CudaPlatform*>(&other);
    return gpu != nullptr && gpu->gpu_ == gpu_;  // between GPUs peer access would have to be set up
  }
  std::unique_ptr<proxy::Copier> make_copier() override { return std::make_unique<CudaCopier>(Gpu::get(gpu_)); }

#if GPUSOCK_HAS_VERBS
  rdma::CardWrites card_writes() const override { return card_writes_; }
  int flush_card_writes() override {
    const CurrentGpu current(gpu_);  // whichever thread runs the proxy's step: the driver flushes its current context
    return rdma::flush_writes_to_gpu(*rdma::cuda_driver());
  }
#endif

  std::vector<int> near_processors() const override {
    char address[32] = {};
    return taken(cudaDeviceGetPCIBusId(address, sizeof address, gpu_)) == cudaSuccess ? proxy::processors_near(address)
                                                                                      : std::vector<int>();
  }

 private:
  int gpu_;
#if GPUSOCK_HAS_VERBS
  rdma::CardWrites card_writes_ = rdma::CardWrites::unsure;
#endif
};

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(Gpu& gpu) : stream_(gpu.streams, Streams::Use::kernels) {}
  void synchronize() override { check(cudaStreamSynchronize(native()), EFAULT, "a kernel failed"); }
  bool idle() const override { return taken(cudaStreamQuery(native())) != cudaErrorNotReady; }

  cudaStream_t native() const { return stream_.get(); }

 private:
  OwnStream stream_;
};

/// The GPU of this number. Throws Error (ENODEV, ENOTSUP) where there is none that gpusock can use.
Gpu& find_gpu(int number) {
  int count = 0;
  const cudaError_t error = taken(cudaGetDeviceCount(&count));
  if (error != cudaSuccess || count == 0) {
    throw Error(ENODEV, "no CUDA GPU (" + cudart::describe(error) + "); programs built with the host preset need none");
  }
  if (number >= count) {
    throw Error(ENODEV,
                "GPUSOCK_GPU=" + std::to_string(number) + ", but the GPUs here are 0 to " + std::to_string(count - 1));
  }
  int same_address = 0;
  check(cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, number), ENODEV,
        "using GPU " + std::to_string(number));
  if (same_address == 0) {
    throw Error(ENOTSUP,
                "GPU " + std::to_string(number) + " cannot use host addresses of pinned memory, which rings need");
  }
  return Gpu::get(number);
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int gpu) : gpu_(find_gpu(gpu)), platform_(std::make_shared<CudaPlatform>(gpu)) {
    gpu_.prepare_copies();
  }

  std::shared_ptr<proxy::Platform> platform() override { return platform_; }
  bool has_own_side() const override { return true; }

  void* allocate(std::size_t bytes) override { return gpu_.allocate(bytes); }
  void free(void* memory) noexcept override { taken(cudaFree(memory)); }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    gpu_.copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    gpu_.copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void* allocate_mapped(std::size_t bytes) override { return platform_->allocate_shared(bytes); }
  void free_mapped(void* memory) noexcept override { taken(cudaFreeHost(memory)); }
  bool free_without_waiting(void* memory, bool mapped) noexcept override {
    return gpu_.free_if_quiet([&] { taken(mapped ? cudaFreeHost(memory) : cudaFree(memory)); });
  }
  bool free_without_waiting(const std::function<void()>& free_memory) noexcept override {
    return gpu_.free_if_quiet(free_memory);
  }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<CudaStream>(gpu_); }

  void relax(std::uint64_t waited_ns) override {
#if defined(GPUSOCK_CUDA_DOUBLE)
    if (cpu_device::in_kernel()) return cpu_device::relax(waited_ns);  // the double runs kernels there
#endif
    if (waited_ns < 5'000) return;
    if (waited_ns < proxy::Engine::kAssistNs) {
      sched_yield();
    } else {
      const timespec nap{0, waited_ns < 10'000'000 ? 50'000 : 500'000};
      nanosleep(&nap, nullptr);
    }
  }

 private:
  Gpu& gpu_;
  std::shared_ptr<CudaPlatform> platform_;
};

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) { return std::make_unique<CudaDevice>(options.gpu); }

cudaStream_t native_stream(Context& context, Stream* stream) {
  return static_cast<CudaStream&>(chosen_stream(context, stream)).native();
}

void launch_native(Context& context, const LaunchShape& shape, const void* kernel, void** arguments) {
  context.impl().begin_call();
  Gpu& gpu = Gpu::get(context.options().gpu);
  const CurrentGpu current(gpu.number);
  const cudaError_t error = gpu.kernels.launch(kernel, [&] {
    if (shape.shared_bytes > kSharedBytesUnasked) {
      const cudaError_t refused = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(shape.shared_bytes));
      if (refused != cudaSuccess) return refused;
    }
    return cudaLaunchKernel(kernel, shape.grid, shape.block, arguments, shape.shared_bytes,
                            native_stream(context, shape.stream));
  });
  check(error, EINVAL, "launch");
  note_launch(context, shape.stream);
}

}  // namespace gpusock::detail
