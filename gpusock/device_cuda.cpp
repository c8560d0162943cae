// CUDA GPUs: shared memory is pinned host memory at one address for both sides.
#include "gpusock/detail/context_impl.hpp"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace gpusock::detail {
namespace {

std::string describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

void check(cudaError_t error, int errno_value, const std::string& what) {
  if (error != cudaSuccess) throw Error(errno_value, what + ": " + describe(error));
}

class CudaPlatform final : public proxy::Platform {
 public:
  explicit CudaPlatform(int gpu) : gpu_(gpu) {}

  void* allocate_shared(std::size_t bytes) override {
    cudaSetDevice(gpu_);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), ENOMEM,
          "pinning " + std::to_string(bytes) + " bytes of host memory (see ulimit -l; lower Options::sockets_max)");
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free_shared(void* memory, std::size_t) noexcept override { cudaFreeHost(memory); }

  void attach(void* memory, std::size_t bytes) override {
    cudaSetDevice(gpu_);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), ENOMEM,
          "pinning " + std::to_string(bytes) + " bytes of rings (see ulimit -l; lower Options::connections_max or ring_bytes)");
  }
  void detach(void* memory, std::size_t) noexcept override { cudaHostUnregister(memory); }

  /// Pinning memory may wait for running kernels, and a kernel may be waiting for the connection that it is for.
  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return false; }

 private:
  int gpu_;
};

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(int gpu) : gpu_(gpu) {
    cudaSetDevice(gpu_);
    check(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), ENOMEM, "cudaStreamCreate");
  }
  ~CudaStream() override {
    cudaStreamSynchronize(native);
    cudaStreamDestroy(native);
  }
  void synchronize() override {
    cudaSetDevice(gpu_);
    check(cudaStreamSynchronize(native), EFAULT, "a kernel failed");
  }
  bool idle() const override { return cudaStreamQuery(native) != cudaErrorNotReady; }

  cudaStream_t native = nullptr;

 private:
  int gpu_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {
    // A kernel that is loaded when it is first launched may wait for those that run, and one of them may wait for it. This
    // has effect where no CUDA call was made before.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
      throw Error(ENODEV, "no CUDA GPU (" + describe(error) + "); programs built with the host preset need none");
    }
    if (gpu >= count) {
      throw Error(ENODEV, "GPUSOCK_GPU=" + std::to_string(gpu) + ", but the GPUs here are 0 to " + std::to_string(count - 1));
    }
    check(cudaSetDevice(gpu), ENODEV, "using GPU " + std::to_string(gpu));
    int same_address = 0;
    cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, gpu);
    if (same_address == 0) {
      throw Error(ENOTSUP, "GPU " + std::to_string(gpu) + " cannot use host addresses of pinned memory, which rings need");
    }
    platform_ = std::make_shared<CudaPlatform>(gpu);
  }

  std::shared_ptr<proxy::Platform> platform() override { return platform_; }
  bool has_own_side() const override { return true; }

  void* allocate(std::size_t bytes) override {
    cudaSetDevice(gpu_);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), ENOMEM, "allocating " + std::to_string(bytes) + " bytes of device memory");
    check(cudaMemset(memory, 0, bytes), ENOMEM, "zeroing device memory");
    return memory;
  }
  void free(void* memory) noexcept override { cudaFree(memory); }
  void copy_in(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  void copy_out(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  void* allocate_mapped(std::size_t bytes) override { return platform_->allocate_shared(bytes); }
  void free_mapped(void* memory) noexcept override { cudaFreeHost(memory); }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<CudaStream>(gpu_); }

  void relax(std::uint64_t waited_ns) override {
    if (waited_ns < 5'000) return;
    if (waited_ns < proxy::Engine::kAssistNs) {
      sched_yield();
    } else {
      const timespec nap{0, waited_ns < 10'000'000 ? 50'000 : 500'000};
      nanosleep(&nap, nullptr);
    }
  }

 private:
  /// On a stream of its own: the default stream would wait for resident kernels.
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    CudaStream stream(gpu_);
    check(cudaMemcpyAsync(to, from, bytes, kind, stream.native), EFAULT, "copying " + std::to_string(bytes) + " bytes");
    stream.synchronize();
  }

  int gpu_;
  std::shared_ptr<CudaPlatform> platform_;
};

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) { return std::make_unique<CudaDevice>(options.gpu); }

cudaStream_t native_stream(Context& context, Stream* stream) {
  DeviceStream& chosen = stream != nullptr ? *stream->impl().native : *context.impl().own_stream;
  return static_cast<CudaStream&>(chosen).native;
}

void launch_native(Context& context, const LaunchShape& shape, const void* kernel, void** arguments) {
  context.impl().count_call();
  cudaSetDevice(context.options().gpu);
  check(cudaLaunchKernel(kernel, shape.grid, shape.block, arguments, shape.shared_bytes, native_stream(context, shape.stream)),
        EINVAL, "launch");
}

}  // namespace gpusock::detail
