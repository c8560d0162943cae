#pragma once
/// @file Tiled matrix product: each block computes one tile of C from tiles of A and B in shared memory.

#include "tests/support/run_kernel.hpp"

namespace gpusock::test {

inline constexpr int kTile = 16;

/// C (rows x columns) = A (rows x inner) * B (inner x columns), row-major. Blocks of kTile x kTile threads.
/// __fmul_rn and __fadd_rn are never fused into one operation that rounds once, as `a * b + c` is by nvcc: the result
/// depends on the order of operations alone and is the same bit for bit on every device.
__global__ void multiply_tiled(const float* a, const float* b, float* c, int rows, int inner, int columns) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y, column = static_cast<int>(blockIdx.x) * kTile + x;
  float sum = 0;
  for (int first = 0; first < inner; first += kTile) {
    tile_a[y][x] = row < rows && first + x < inner ? a[row * inner + first + x] : 0.0f;
    tile_b[y][x] = column < columns && first + y < inner ? b[(first + y) * columns + column] : 0.0f;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum = __fadd_rn(sum, __fmul_rn(tile_a[y][k], tile_b[k][x]));
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

}  // namespace gpusock::test
