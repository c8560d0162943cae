#pragma once
/// @file Launching kernels: the same call for the CPU device and for GPUs.

#include "gpusock/gpusock.hpp"

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#if GPUSOCK_KERNELS_ON_CPU
#include "cpu_device/launch.hpp"
#endif

namespace gpusock {

namespace detail {
template <class T>
inline constexpr bool kIsMemory = false;
template <class T>
inline constexpr bool kIsMemory<Mapped<T>> = true;
template <class T>
inline constexpr bool kIsMemory<DeviceBuffer<T>> = true;

/// True if a kernel with these parameters can be launched with these arguments. If not, the compiler prints a sentence
/// that says why.
template <class... Arguments, class... Parameters>
constexpr bool can_launch(void (*)(Parameters...)) {
  constexpr bool as_many = sizeof...(Parameters) == sizeof...(Arguments);
  constexpr bool no_memory = !(kIsMemory<std::remove_cvref_t<Arguments>> || ...);
  constexpr bool by_value = !(std::is_reference_v<Parameters> || ...);
  static_assert(as_many, "launch: give a kernel as many arguments as it has parameters");
  static_assert(no_memory, "launch: a kernel takes the address of a Mapped or a DeviceBuffer: pass its .data()");
  static_assert(by_value, "launch: a kernel takes its parameters by value: they must not be references");
  if constexpr (as_many && no_memory && by_value) {
    constexpr bool convertible = (std::is_constructible_v<std::remove_cv_t<Parameters>, Arguments> && ...);
    static_assert(convertible, "launch: an argument cannot be converted to the type of the kernel's parameter");
    return convertible;
  } else {
    return false;
  }
}
}  // namespace detail

#if defined(GPUSOCK_DEVICE_CPU)
namespace detail {
cpu_device::Stream& native_stream(Context& context, Stream* stream);
void note_launch(Context& context, Stream* stream) noexcept;
[[noreturn]] void throw_launch_error();  ///< throws what launch() documents, for the exception being handled
}  // namespace detail

/// Starts `kernel` on every thread of the shape and returns at once; kernels of one stream run in order. The arguments
/// are converted to the kernel's parameter types and copied now. Throws Error: (EINVAL) the device does not have this
/// shape, (EAGAIN) the CPU device cannot start a thread to run the kernel, (ENOMEM) there is no memory, (ENOBUFS) the
/// context's own stream must be made and, in the shape of a GPU, no stream is left. After an error nothing is launched.
/// A kernel that fails is reported by synchronize().
template <class... Parameters, class... Arguments>
void launch(Context& context, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if constexpr (detail::can_launch<Arguments&&...>(static_cast<void (*)(Parameters...)>(nullptr))) {
    try {
      cpu_device::launch(detail::native_stream(context, shape.stream),
                         {shape.grid, shape.block, shape.shared_bytes, shape.blocks_share_threads}, kernel,
                         std::forward<Arguments>(arguments)...);
    } catch (const std::exception&) {
      detail::throw_launch_error();
    }
    detail::note_launch(context, shape.stream);
  }
}

/// The block's dynamic shared memory, as many bytes as the launch asked for.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cpu_device::dynamic_shared());
}

#elif defined(GPUSOCK_DEVICE_CUDA)
namespace detail {
void note_launch(Context& context, Stream* stream) noexcept;
cudaStream_t native_stream(Context& context, Stream* stream);
void launch_native(Context& context, const LaunchShape& shape, const void* kernel, void** arguments);

/// The address by which the CUDA runtime knows a kernel.
template <class... Parameters>
const void* symbol_of(void (*kernel)(Parameters...)) {
#if defined(GPUSOCK_CUDA_DOUBLE)
  return cuda_double::symbol_of(kernel);  // this call tells the double how to call the kernel
#else
  return reinterpret_cast<const void*>(kernel);
#endif
}
}  // namespace detail

/// Starts `kernel` on every thread of the shape and returns at once; kernels of one stream run in order. The arguments
/// are converted to the kernel's parameter types and copied now. Throws Error: (EINVAL) the device does not have this
/// shape, (EBUSY) the kernel's first launch would wait for kernels that run (docs/semantics.md), (ENOMEM) there is no
/// memory for its stack, (ENOBUFS) the context's own stream must be made and each hardware queue has a stream. A kernel
/// that fails is reported by synchronize(). A kernel for blocks of more than 256 threads is declared with
/// __launch_bounds__(threads, 1): otherwise its threads may need more registers than a GPU has for a block (EINVAL).
template <class... Parameters, class... Arguments>
void launch(Context& context, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if constexpr (detail::can_launch<Arguments&&...>(static_cast<void (*)(Parameters...)>(nullptr))) {
    std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
    std::apply(
        [&](auto&... value) {
          void* addresses[] = {const_cast<void*>(static_cast<const void*>(&value))..., nullptr};
          detail::launch_native(context, shape, detail::symbol_of(kernel), addresses);
        },
        values);
  }
}

#if defined(__CUDACC__)
/// The block's dynamic shared memory, as many bytes as the launch asked for.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char gpusock_dynamic_shared[];
  return reinterpret_cast<T*>(gpusock_dynamic_shared);
}
#elif GPUSOCK_KERNELS_ON_CPU
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cpu_device::dynamic_shared());
}
#endif
#endif

}  // namespace gpusock
