// The device of contexts on CUDA GPUs.
#include "gpusock/context/context_impl.hpp"
#include "gpusock/cuda/check.hpp"
#include "gpusock/cuda/environment.hpp"
#include "gpusock/cuda/gpu.hpp"
#include "gpusock/cuda/platform.hpp"
#include "host_proxy/base/log.hpp"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <time.h>

#include <string>

namespace gpusock::detail {
namespace {

using cudart::check;
using cudart::CudaPlatform;
using cudart::CurrentGpu;
using cudart::Gpu;
using cudart::OwnStream;
using cudart::Streams;
using cudart::taken;

/// A launch with more dynamic shared memory needs a call of cudaFuncSetAttribute() before.
constexpr std::size_t kSharedBytesUnasked = 48 << 10;

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(Gpu& gpu) : stream_(gpu.streams, Streams::Use::kernels) {}
  void synchronize() override { check(cudaStreamSynchronize(native()), EFAULT, "a kernel failed"); }
  bool idle() const override { return taken(cudaStreamQuery(native())) != cudaErrorNotReady; }

  cudaStream_t native() const { return stream_.get(); }

 private:
  OwnStream stream_;
};

/// Describes a launch, for the text of the error that it had.
std::string describe_launch(cudaError_t error, const LaunchShape& shape) {
  if (error != cudaErrorLaunchOutOfResources) return "launch";
  const std::string threads = std::to_string(shape.block.x * shape.block.y * shape.block.z);
  return "launch: a block of " + threads + " threads needs more registers than a GPU has for it: declare the kernel " +
         "__launch_bounds__(" + threads + ", 1), or launch smaller blocks";
}

/// Returns the GPU with this number. Throws Error: (ENODEV) there is none, (ENOTSUP) gpusock cannot use it, or not with
/// this setting of CUDA.
Gpu& find_gpu(int number) {
  cudart::require_launches_that_return();
  int count = 0;
  const cudaError_t error = taken(cudaGetDeviceCount(&count));
  if (error != cudaSuccess || count == 0) {
    throw Error(ENODEV, "no CUDA GPU (" + cudart::describe(error) + "); programs built with the host preset need none");
  }
  if (number >= count) {
    throw Error(ENODEV,
                "there is no GPU " + std::to_string(number) + ": the GPUs here are 0 to " + std::to_string(count - 1));
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

void warn_of_lazy_loading(const Gpu& gpu) {
  if (!gpu.kernels.loads_lazily()) return;
  proxy::log_warn(
      "CUDA loads kernels lazily here: the first launch from a .cu file waits up to 5 s for kernels that run, and then "
      "fails (EBUSY). Set CUDA_MODULE_LOADING=EAGER before the process's first CUDA call");
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const Options& options)
      : gpu_(find_gpu(options.gpu)), platform_(std::make_shared<CudaPlatform>(options.gpu)) {
    gpu_.prepare_copies();
    warn_of_lazy_loading(gpu_);
    if (options.ring != RingPlacement::host) cudart::PeerAccess::get().add(gpu_);
  }

  std::shared_ptr<proxy::Platform> platform() override { return platform_; }
  bool has_own_side() const override { return true; }
  bool is_copied_by_fork() const override { return false; }  // a child cannot use the driver's memory

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
    if (cpu_device::in_kernel()) return cpu_device::relax(waited_ns);  // the double runs kernels on host threads
#endif
    if (waited_ns < 5'000) return;
    if (waited_ns < proxy::Engine::kAssistNs) {
      sched_yield();
    } else {
      const timespec nap{0, waited_ns < 10'000'000 ? 50'000 : 500'000};
      nanosleep(&nap, nullptr);
    }
  }
#if defined(GPUSOCK_CUDA_DOUBLE)
  std::int64_t running_block() const override { return cpu_device::running_block(); }
#endif

 private:
  Gpu& gpu_;
  std::shared_ptr<CudaPlatform> platform_;
};

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) { return std::make_unique<CudaDevice>(options); }

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
  check(error, EINVAL, describe_launch(error, shape));
  note_launch(context, shape.stream);
}

}  // namespace gpusock::detail
