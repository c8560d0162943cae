// The CPU device: its memory belongs to this process, and kernels run on cpu_device.
#include "cpu_device/device_shape.hpp"
#include "gpusock/context/context_impl.hpp"
#include "gpusock/cpu/gpu_shape.hpp"
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/stream.hpp"
#include "gpusock/cpu/zeroed_memory.hpp"
#include "host_proxy/base/cpu_shape.hpp"
#include "host_proxy/base/no_thread.hpp"

#include <cstring>
#include <new>
#include <string>

namespace gpusock::detail {
namespace {

void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate_zeroed(bytes);
  if (memory == nullptr) throw Error(ENOMEM, "allocating " + std::to_string(bytes) + " bytes of device memory");
  return memory;
}

class CpuDevice final : public Device {
 public:
  std::shared_ptr<proxy::Platform> platform() override { return std::make_shared<proxy::HostPlatform>(); }
  bool has_own_side() const override { return false; }
  void* allocate(std::size_t bytes) override { return allocate_or_throw(bytes); }
  void free(void* memory) noexcept override { free_zeroed(memory); }
  void copy_in(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_out(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void* allocate_mapped(std::size_t bytes) override { return allocate_or_throw(bytes); }
  void free_mapped(void* memory) noexcept override { free_zeroed(memory); }
  bool free_without_waiting(void* memory, bool) noexcept override {
    free(memory);
    return true;
  }
  bool free_without_waiting(const std::function<void()>& free_memory) noexcept override {
    free_memory();
    return true;
  }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<CpuStream>(); }
  void relax(std::uint64_t waited_ns) override { cpu_device::relax(waited_ns); }
  void relax_until(proxy::News& news, std::uint64_t waited_ns) override {
    cpu_device::relax(waited_ns, {&news.times, &news.sleepers});
  }
  std::int64_t running_block() const override { return cpu_device::running_block(); }
  Note note_unfinished() const override { return cpu_device::note_unfinished; }
  Keep keep_unfinished() const override { return cpu_device::keep_unfinished; }
  Drop drop_unfinished() const override { return cpu_device::drop_unfinished; }
};

/// Lets all threads of a group make its calls, if the variable asks for it. Otherwise the group's leader makes them.
void choose_who_calls() {
  if (proxy::group_calls_from_env() != proxy::GroupCalls::all) return;
  cpu_device::DeviceShape shape = cpu_device::device_shape();
  shape.leaders_make_calls = false;
  cpu_device::set_device_shape(shape);
}

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) {
  if (has_gpu_shape()) return make_gpu_shaped_device(options.gpu);
  // Not std::call_once: if the function throws, its next call may wait for ever (ThreadSanitizer's does).
  [[maybe_unused]] static const bool chosen = (choose_who_calls(), true);
  return std::make_unique<CpuDevice>();
}

cpu_device::Stream& native_stream(Context& context, Stream* stream) {
  context.impl().begin_call();
  return static_cast<CpuStream&>(chosen_stream(context, stream)).native;
}

void throw_launch_error() {
  try {
    throw;
  } catch (const std::invalid_argument& error) {
    throw Error(EINVAL, error.what());  // its text names the call
  } catch (const std::bad_alloc&) {
    throw Error(ENOMEM, "launch: queueing a kernel");
  } catch (const Error&) {
    throw;
  } catch (const std::system_error& error) {
    throw Error(error.code().value(),
                std::string("launch: starting a thread to run the kernel; ") + proxy::remedy_for_no_thread());
  }
}

}  // namespace gpusock::detail
