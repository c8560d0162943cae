#pragma once
/// @file Runs plain CUDA kernels in a test: on the CPU device where a host compiler reads this, on the GPU where nvcc
/// does.
///
/// A test is written once: REQUIRE_DEVICE(); DeviceArray for everything that a kernel touches; run_kernel(). Buffers
/// are ordinary device memory (no managed memory), so that a kernel that reads a host pointer fails on a GPU.

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"
#endif

#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpusock::test {

/// The largest block that tests use. ThreadSanitizer takes a megabyte, and its time, for each thread at a barrier.
inline constexpr unsigned kLargestBlock = kThreadSanitized ? 128 : 1024;

struct KernelShape {
  dim3 grid{1};
  dim3 block{1};
  std::size_t shared_bytes = 0;
};

#if defined(__CUDACC__)

inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/// `count` zeros, or a copy, in the device's memory.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, bytes()), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0, bytes()), "cudaMemset");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    check_cuda(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }

  std::size_t count_;
  T* data_ = nullptr;
};

/// Launches and waits; throws std::runtime_error where either fails.
template <class... Parameters, class... Arguments>
void run_kernel(const KernelShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* addresses[] = {static_cast<void*>(&value)..., nullptr};
        check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, shape.block, addresses,
                                    shape.shared_bytes, nullptr),
                   "cudaLaunchKernel");
      },
      values);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// The block's dynamic shared memory.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char test_dynamic_shared[];
  return reinterpret_cast<T*>(test_dynamic_shared);
}

#else

inline bool has_device() { return true; }

/// `count` zeros, or a copy, in the device's memory.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit DeviceArray(std::size_t count) : values_(count) {}
  explicit DeviceArray(const std::vector<T>& values) : values_(values) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return values_.data(); }
  std::vector<T> read() const { return values_; }

 private:
  std::vector<T> values_;
};

/// Launches and waits; throws std::runtime_error where either fails.
template <class... Parameters, class... Arguments>
void run_kernel(const KernelShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  cpu_device::Stream stream;
  cpu_device::launch(stream, {shape.grid, shape.block, shape.shared_bytes}, kernel,
                     std::forward<Arguments>(arguments)...);
  stream.synchronize();
}

/// The block's dynamic shared memory.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cpu_device::dynamic_shared());
}

#endif

}  // namespace gpusock::test

/// Skips the test where programs are built for GPUs and there is none.
#define REQUIRE_DEVICE() \
  if (!gpusock::test::has_device()) GTEST_SKIP() << "no GPU on this machine: the kernel was compiled but not run"
