#include "param_sync/executor/factors.hpp"

#include "param_sync/update/multiply_add.hpp"

#include "gpusock/device.cuh"

#include <algorithm>

namespace param_sync::executor {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kRebuildThreads = 1, kRebuildBlocksMax = 2;  // threads of a block share one processor
#else
constexpr unsigned kRebuildThreads = 256, kRebuildBlocksMax = 1024;
#endif

#if GPUSOCK_ON_GPU
/// Rebuilds one row. Each thread has some columns, and keeps a sum in a register.
__device__ inline void rebuild_row(const FactorLayout& layout, std::uint32_t row, const float* gathered, float* to) {
  for (std::uint32_t column = threadIdx.x; column < layout.columns; column += blockDim.x) {
    float sum = 0;
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
      float of_rank = 0;
      for (std::uint32_t sample = 0; sample < layout.samples; ++sample) {
        of_rank += gathered[layout.u_begin(rank, sample) + row] * gathered[layout.v_begin(rank, sample) + column];
      }
      sum += of_rank;
    }
    to[column] = sum;
  }
}
#else
/// Computes the same sums, some columns at a time: the compiler adds several at once, and they stay in the cache.
__device__ inline void rebuild_row(const FactorLayout& layout, std::uint32_t row, const float* gathered, float* to) {
  constexpr std::uint32_t kColumns = 512;
  float of_rank[kColumns];
  for (std::uint32_t begin = threadIdx.x * kColumns; begin < layout.columns; begin += blockDim.x * kColumns) {
    const std::uint32_t count = layout.columns - begin < kColumns ? layout.columns - begin : kColumns;
    float* __restrict sum = to + begin;
    for (std::uint32_t i = 0; i < count; ++i) sum[i] = 0;
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
      for (std::uint32_t i = 0; i < count; ++i) of_rank[i] = 0;
      for (std::uint32_t sample = 0; sample < layout.samples; ++sample) {
        const float u = gathered[layout.u_begin(rank, sample) + row];
        const float* v = gathered + layout.v_begin(rank, sample) + begin;
        for (std::uint32_t i = 0; i < count; ++i) of_rank[i] += u * v[i];
      }
      for (std::uint32_t i = 0; i < count; ++i) sum[i] += of_rank[i];
    }
  }
}
#endif

/// Blocks take rows in turn.
__global__ void rebuild(FactorLayout layout, const float* gathered, float* gradient) {
  for (std::uint32_t row = blockIdx.x; row < layout.rows; row += gridDim.x) {
    rebuild_row(layout, row, gathered, gradient + std::uint64_t{row} * layout.columns);
  }
}

__global__ void descend_kernel(const float* gradient, float rate, float* weights, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    weights[i] = multiply_add(-rate, gradient[i], weights[i]);
  }
}

}  // namespace

void rebuild_gradient(gpusock::Context& context, const FactorLayout& layout, const float* gathered, float* gradient) {
  if (layout.gradient_floats() == 0 || layout.samples == 0 || layout.ranks == 0) {
    throw gpusock::Error(EINVAL, "a gradient of factors: rows, columns, samples and ranks are at least one each");
  }
  gpusock::launch(context, {.grid = std::min(layout.rows, kRebuildBlocksMax), .block = kRebuildThreads}, rebuild,
                  layout, gathered, gradient);
}

void descend(gpusock::Context& context, const float* gradient, float rate, float* weights, std::uint64_t count) {
  gpusock::launch(context, {.grid = kRebuildBlocksMax, .block = kRebuildThreads}, descend_kernel, gradient, rate,
                  weights, count);
}

}  // namespace param_sync::executor
