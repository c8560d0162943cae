#pragma once
/// @file One thread's tile of a matrix product: kTileRows rows by four columns, summed in the order of the steps.
///
/// Every sum of the model is one of these, so its order depends on nothing but the shapes: results are the same bit for
/// bit on every run, link and number of cores. Multiply-adds are spelled out because a compiler may fuse them in one
/// place and not in another.

#include "layers/tile.hpp"
#include "param_sync/update/multiply_add.hpp"

#include "gpusock/device.cuh"

namespace param_sync {

/// Four columns of one row.
struct Float4 {
#if defined(__CUDACC__)
  float column[kTileColumns];
#else
  float column __attribute__((vector_size(16)));
#endif
};

__device__ inline void multiply_add(float a, const Float4& b, Float4& sum) {
#if defined(__CUDACC__)
  for (std::uint32_t c = 0; c < kTileColumns; ++c) sum.column[c] = multiply_add(a, b.column[c], sum.column[c]);
#else
  sum.column += a * b.column;
#endif
}

/// Reads the first `count` of four numbers that are `stride` apart; the others are 0.
__device__ inline Float4 load4(const float* from, std::uint32_t stride, std::uint32_t count) {
  Float4 result{};
#if !defined(__CUDACC__)
  if (stride == 1 && count == kTileColumns) {
    __builtin_memcpy(&result, from, sizeof result);
    return result;
  }
#endif
  for (std::uint32_t c = 0; c < kTileColumns; ++c) {
    if (c < count) result.column[c] = from[c * stride];
  }
  return result;
}

/// The left factor: value(row, step) = data[row * row_stride + step * step_stride].
struct LeftMatrix {
  const float* data;
  std::uint32_t row_stride;
  std::uint32_t step_stride;
};

/// The right factor: value(step, column) = data[step * step_stride + column * column_stride].
struct RightMatrix {
  const float* data;
  std::uint32_t step_stride;
  std::uint32_t column_stride;
};

/// Adds left * right, step after step, to the tile, whose rows are anywhere: the left factor is
/// value(r, step) = row[r][first + step * step_stride].
__device__ __forceinline__ void multiply_rows(Float4 (&sum)[kTileRows], const float* const (&row)[kTileRows],
                                              std::size_t first, std::uint32_t step_stride, RightMatrix right,
                                              std::uint32_t steps, std::uint32_t columns) {
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Float4 factors = load4(right.data + std::size_t{step} * right.step_stride, right.column_stride, columns);
#pragma unroll
    for (std::uint32_t r = 0; r < kTileRows; ++r)
      multiply_add(row[r][first + std::size_t{step} * step_stride], factors, sum[r]);
  }
}

/// Adds left * right, step after step, to the tile. Rows from `rows` on repeat the last one: ignore their sums.
__device__ __forceinline__ void multiply_tile(Float4 (&sum)[kTileRows], LeftMatrix left, RightMatrix right,
                                              std::uint32_t steps, std::uint32_t rows, std::uint32_t columns) {
  const float* row[kTileRows];
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r)
    row[r] = left.data + std::size_t{r < rows ? r : rows - 1} * left.row_stride;
  multiply_rows(sum, row, 0, left.step_stride, right, steps, columns);
}

/// The tile of a matrix that a thread computes: its first row and column, and how many rows and columns it has.
struct TileBounds {
  std::uint32_t row, rows;
  std::uint32_t column, columns;
};

/// The tile with number `index` of a rows x columns matrix. Tiles are counted row by row.
__device__ inline TileBounds tile_bounds(std::uint32_t index, std::uint32_t rows, std::uint32_t columns) {
  const std::uint32_t across = (columns + kTileColumns - 1) / kTileColumns;
  const std::uint32_t row = index / across * kTileRows, column = index % across * kTileColumns;
  return {row, min(kTileRows, rows - row), column, min(kTileColumns, columns - column)};
}

}  // namespace param_sync
