// The CPU device in the shape of a GPU: it refuses what a GPU refuses, and waits where a GPU waits.
#include "gpusock/cpu/gpu_shape.hpp"

#include "cpu_device/device_memory.hpp"
#include "cpu_device/device_shape.hpp"
#include "cpu_device/sanitizers.hpp"
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/memory_copier.hpp"
#include "gpusock/cpu/stream.hpp"
#include "gpusock/cpu/zeroed_memory.hpp"
#include "host_proxy/base/cpu_shape.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace gpusock::detail {
namespace {

constexpr unsigned kResidentBlocks = 128;
constexpr unsigned kHardwareQueues = 32;         // the maximum; gpusock asks for as many on GPUs, too
                                                 // (cuda/environment.cpp)
constexpr unsigned kHardwareQueuesOfDriver = 8;  // if the variable is no positive number
constexpr unsigned kQueuedLaunchesMax = 1024;
constexpr std::uint64_t kClockAheadNs = 7ull * 365 * 24 * 3600 * 1'000'000'000;
constexpr std::uint64_t kClockStepNs = 1000;

constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Returns the number of hardware queues, as cudart::hardware_queues() does for a GPU.
unsigned hardware_queues() {
  const char* const text = std::getenv(kQueues);
  if (text == nullptr) return kHardwareQueues;
  const long wanted = std::strtol(text, nullptr, 10);
  return wanted < 1 ? kHardwareQueuesOfDriver : static_cast<unsigned>(std::min<long>(wanted, kHardwareQueues));
}

std::string bytes_of(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

/// True while this thread makes calls that need no wait, because no kernel ran when they began.
constinit thread_local bool t_quiet = false;

/// Sets t_quiet in a scope. A kernel that is launched meanwhile uses nothing of what is freed or mapped.
struct Quiet {
  Quiet() { t_quiet = true; }
  ~Quiet() { t_quiet = false; }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// Callers that free memory pass a literal as `call`, because they must not allocate any.
void wait_for_kernels(std::string_view call) {
  if (!t_quiet) cpu_device::wait_for_kernels(call);
}

/// Returns what GPUSOCK_CPU_SHAPE said when it was first read.
proxy::CpuShape asked_shape() {
  static const proxy::CpuShape asked = proxy::cpu_shape_from_env();
  return asked;
}

/// Device memory in a file, which other processes map.
class FileArena final : public proxy::DeviceArena {
 public:
  FileArena(std::byte* memory, proxy::Descriptor file) : memory_(memory), file_(std::move(file)) {}
  ~FileArena() override {
    wait_for_kernels("unmapping an arena");
    cpu_device::free_device_memory(memory_);
  }
  FileArena(const FileArena&) = delete;
  FileArena& operator=(const FileArena&) = delete;

  std::byte* memory() const override { return memory_; }
  int descriptor() const override { return file_.get(); }

 private:
  std::byte* memory_;
  proxy::Descriptor file_;  // empty if another process made the arena
};

/// ThreadSanitizer identifies memory by its address: if a word has two, it reports a race for what the word passes on.
/// With ThreadSanitizer the word has one address, and host threads may use it.
constexpr bool kOneAddress = CPU_DEVICE_TSAN != 0;

/// Device memory in a file that is mapped once more, for the host.
class FileWindow final : public proxy::DeviceWindow {
 public:
  FileWindow(const proxy::Descriptor& file, std::size_t bytes) : bytes_(bytes) {
    mapping_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    if (kOneAddress) return;
    try {
      memory_ = cpu_device::map_device_memory(file.get(), bytes);
    } catch (const std::bad_alloc&) {
      munmap(mapping_, bytes);
      throw;
    }
  }
  ~FileWindow() override {
    wait_for_kernels("unmapping device memory");
    cpu_device::free_device_memory(memory_);
    munmap(mapping_, bytes_);
  }

  std::byte* device() const override { return static_cast<std::byte*>(kOneAddress ? mapping_ : memory_); }
  std::byte* mapping() const override { return static_cast<std::byte*>(mapping_); }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
  void* mapping_ = nullptr;
};

/// Throws Error (EFBIG) beyond the limit on file sizes, where the operating system would end the program (SIGXFSZ).
void require_file_size(std::size_t bytes) {
  rlimit limit{};
  const auto page = static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur / page * page) return;
  throw Error(EFBIG, "making a file of " + bytes_of(bytes) + " of device memory; see ulimit -f");
}

int make_file(std::size_t bytes, int gpu) {
  require_file_size(bytes);
  try {
    return cpu_device::make_device_memory_file(bytes, gpu);
  } catch (const std::system_error& error) {
    const int value = error.code().value();
    throw Error(value, "making a file of " + bytes_of(bytes) + " of device memory" +
                           (value == EMFILE ? "; raise the limit on open files (ulimit -n)" : ""));
  }
}

std::unique_ptr<proxy::DeviceArena> map_file(int file, std::size_t bytes, proxy::Descriptor kept) {
  try {
    auto* const memory = static_cast<std::byte*>(cpu_device::map_device_memory(file, bytes));
    return std::make_unique<FileArena>(memory, std::move(kept));
  } catch (const std::bad_alloc&) {
    throw Error(ENOMEM, "mapping " + bytes_of(bytes) + " of device memory");
  }
}

/// Pinned host memory and device memory of one of the GPUs. Calls that may wait for kernels on a GPU do wait here, for
/// the kernels of all GPUs.
class GpuShapedPlatform final : public proxy::Platform {
 public:
  explicit GpuShapedPlatform(int gpu) : gpu_(gpu) {}

  void* allocate_shared(std::size_t bytes) override {
    wait_for_kernels("pinning " + bytes_of(bytes) + " of host memory");
    return host_.allocate_shared(bytes);
  }
  void free_shared(void* memory, std::size_t bytes) noexcept override {
    wait_for_kernels("freeing pinned memory");
    host_.free_shared(memory, bytes);
  }
  void attach(void*, std::size_t bytes) override { wait_for_kernels("pinning " + bytes_of(bytes) + " of rings"); }
  void detach(void*, std::size_t) noexcept override { wait_for_kernels("unpinning rings"); }

  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return false; }
  bool device_memory_is_mappable() const override { return false; }

  std::byte* allocate_device(std::size_t bytes) override {
    wait_for_kernels("allocating " + bytes_of(bytes) + " of device memory");
    try {
      return static_cast<std::byte*>(cpu_device::allocate_device_memory(bytes));
    } catch (const std::bad_alloc&) {
      throw Error(ENOMEM, "allocating " + bytes_of(bytes) + " of device memory");
    }
  }
  void free_device(std::byte* memory) noexcept override {
    wait_for_kernels("freeing device memory");
    cpu_device::free_device_memory(memory);
  }
  void zero_device(std::byte* memory, std::size_t bytes) override {
    wait_for_kernels("zeroing device memory");
    const std::vector<std::byte> zeros(bytes);
    cpu_device::copy_device_memory(memory, zeros.data(), bytes);
  }
  std::unique_ptr<proxy::DeviceWindow> make_window(std::size_t bytes) override {
    wait_for_kernels("mapping " + bytes_of(bytes) + " of device memory for the host");
    try {
      return std::make_unique<FileWindow>(proxy::Descriptor(make_file(bytes, gpu_)), bytes);
    } catch (const std::bad_alloc&) {
      throw Error(ENOMEM, "mapping " + bytes_of(bytes) + " of device memory for the host");
    }
  }
  std::byte* proxy_address(std::byte* device_memory) const override { return proxy::hide(device_memory); }
  bool reaches_device_memory_of(const Platform& other) const override {
    return is_same_device_as(other) || asked_shape() != proxy::CpuShape::gpus_apart;
  }
  bool is_same_device_as(const Platform& other) const override { return gpu_of(other) == gpu_; }
  std::string why_apart_from(const Platform& other) const override { return why_apart(gpu_of(other)); }
  std::unique_ptr<proxy::Copier> make_copier() override {
    return std::make_unique<proxy::MemoryCopier>(cpu_device::copy_device_memory);
  }
  bool shows_nic_writes() const override { return true; }
  bool orders_nic_writes() const override { return true; }

  std::string name_on_host() const override { return name_of(gpu_); }
  std::unique_ptr<proxy::DeviceArena> make_arena(std::size_t bytes) override {
    wait_for_kernels("making an arena of " + bytes_of(bytes));
    proxy::Descriptor file(make_file(bytes, gpu_));
    const int number = file.get();
    return map_file(number, bytes, std::move(file));
  }
  std::unique_ptr<proxy::DeviceArena> map_arena(proxy::Descriptor file, std::size_t bytes,
                                                const std::string& device) override {
    wait_for_kernels("mapping an arena of " + bytes_of(bytes));
    const auto owner = cpu_device::gpu_of_device_memory(file.get(), bytes);
    if (!owner || name_of(*owner) != device) {
      throw Error::with_cause(EPROTO, "what another process shares is no arena of this size on " + device);
    }
    if (*owner != gpu_ && asked_shape() == proxy::CpuShape::gpus_apart)
      throw Error::with_cause(ENOTSUP, why_apart(*owner));
    return map_file(file.get(), bytes, {});
  }
  bool while_quiet(const std::function<void()>& action) override {
    if (cpu_device::kernels_run()) return false;
    const Quiet quiet;
    action();
    return true;
  }

 private:
  /// All platforms of the process are of this kind.
  static int gpu_of(const Platform& other) { return static_cast<const GpuShapedPlatform&>(other).gpu_; }
  static std::string name_of(int gpu) { return "GPU " + std::to_string(gpu) + " of the CPU device"; }
  std::string why_apart(int other) const {
    return "GPUSOCK_CPU_SHAPE=gpus-apart keeps GPU " + std::to_string(gpu_) + " and GPU " + std::to_string(other) +
           " apart";
  }

  int gpu_;
  proxy::HostPlatform host_;
};

/// One of the streams that gpusock may have on a GPU at the same time: each has a hardware queue of its own, and one
/// queue is for copies. A stream is counted until its queue is free.
class StreamCount {
 public:
  StreamCount() {
    const unsigned queues = cpu_device::device_shape().hardware_queues, most = queues - 1;
    if (count().fetch_add(1) < most) return;
    count().fetch_sub(1);
    const std::string set = std::string("Set ") + kQueues + " to at most 32 (here it is " + std::to_string(queues) +
                            ") before the program starts, or use";
    throw Error(ENOBUFS, "another stream on the GPU: of its hardware queues (" + std::to_string(queues) +
                             ") one is for copies, and streams have the others (" + std::to_string(most) +
                             "): kernels of streams that share a queue may wait for each other for ever. " +
                             (queues < kHardwareQueues ? set : "Use") + " fewer contexts and streams in this process");
  }
  ~StreamCount() { count().fetch_sub(1); }
  StreamCount(const StreamCount&) = delete;
  StreamCount& operator=(const StreamCount&) = delete;

 private:
  /// Counts the streams of all GPUs, because these share their queues, too.
  static std::atomic<unsigned>& count() {
    static std::atomic<unsigned> streams{0};
    return streams;
  }
};

class CountedStream final : private StreamCount, public CpuStream {};

class GpuShapedDevice final : public Device {
 public:
  explicit GpuShapedDevice(int gpu) : platform_(std::make_shared<GpuShapedPlatform>(gpu)) {}

  std::shared_ptr<proxy::Platform> platform() override { return platform_; }
  bool has_own_side() const override { return true; }

  void* allocate(std::size_t bytes) override { return platform_->allocate_device(bytes); }
  void free(void* memory) noexcept override { platform_->free_device(static_cast<std::byte*>(memory)); }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    cpu_device::copy_device_memory(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    cpu_device::copy_device_memory(to, from, bytes);
  }

  void* allocate_mapped(std::size_t bytes) override {
    wait_for_kernels("pinning " + bytes_of(bytes) + " of host memory");
    void* const memory = allocate_zeroed(bytes);
    if (memory == nullptr) throw Error(ENOMEM, "pinning " + bytes_of(bytes) + " of host memory");
    return memory;
  }
  void free_mapped(void* memory) noexcept override {
    wait_for_kernels("freeing pinned memory");
    free_zeroed(memory);
  }
  bool free_without_waiting(void* memory, bool mapped) noexcept override {
    return free_without_waiting([&] { mapped ? free_mapped(memory) : free(memory); });
  }
  bool free_without_waiting(const std::function<void()>& free_memory) noexcept override {
    if (cpu_device::kernels_run()) return false;
    const Quiet quiet;
    free_memory();
    return true;
  }

  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<CountedStream>(); }
  void relax(std::uint64_t waited_ns) override { cpu_device::relax(waited_ns); }
  std::int64_t running_block() const override { return cpu_device::running_block(); }

 private:
  std::shared_ptr<GpuShapedPlatform> platform_;
};

void give_shape() {
  static constexpr KernelsApart kApart{cpu_device::in_kernel, cpu_device::clock_ns};
  cpu_device::DeviceShape shape;
  shape.hardware_queues = hardware_queues();
  shape.resident_blocks_max = kResidentBlocks;
  shape.queued_launches_max = kQueuedLaunchesMax;
  shape.kernel_clock_ahead_ns = kClockAheadNs;
  shape.kernel_clock_step_ns = kClockStepNs;
  shape.guarded_device_memory = true;
  shape.leaders_make_calls = false;
  try {
    cpu_device::set_device_shape(shape);
  } catch (const std::logic_error& error) {
    throw Error(EINVAL, std::string("GPUSOCK_CPU_SHAPE=gpu: ") + error.what());
  }
  kernels_apart = &kApart;
}

}  // namespace

bool has_gpu_shape() { return asked_shape() != proxy::CpuShape::cpu; }

std::unique_ptr<Device> make_gpu_shaped_device(int gpu) {
  if (gpu >= proxy::kGpusOfShape) {
    throw Error(ENODEV, "there is no GPU " + std::to_string(gpu) + ": the GPUs of this shape are 0 to " +
                            std::to_string(proxy::kGpusOfShape - 1));
  }
  if (gpu < 0) throw Error(ENODEV, "Options::gpu is " + std::to_string(gpu) + ": GPUs are counted from 0");
  // Not std::call_once: if the function throws, its next call may wait for ever (ThreadSanitizer's does).
  [[maybe_unused]] static const bool given = (give_shape(), true);
  return std::make_unique<GpuShapedDevice>(gpu);
}

}  // namespace gpusock::detail
