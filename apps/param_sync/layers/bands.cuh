#pragma once
/// @file The order in which threads compute the tiles of a product, cut into bands or not.

#include "layers/tile.cuh"

namespace param_sync {

/// All steps of a sum. A type of its own, so that products which are not cut have code that passes nothing on.
struct AllSteps {
  static constexpr std::uint32_t begin = 0;
  static constexpr bool are_last = true;
  std::uint32_t end;

  __device__ static constexpr bool are_first() { return true; }
  __device__ std::uint32_t count() const { return end; }
};

/// Steps of a sum, those of a band.
struct Steps {
  std::uint32_t begin, end;
  bool are_last;  ///< the sum is complete after them

  __device__ bool are_first() const { return begin == 0; }
  __device__ std::uint32_t count() const { return end - begin; }
};

/// Calls `call` with each tile that this thread computes of a product of so many rows, and the steps to add: all of
/// them or, if the product is cut, band after band. `call` then passes on what is not complete: the same thread gets
/// the tile's next steps. Block-collective.
template <class Call>
__device__ __forceinline__ void for_product_tiles(const Bands& of, std::uint32_t rows, Call call) {
  if (of.height == 0) {
    const std::uint32_t tiles = tile_count(rows, of.columns);
    for (std::uint32_t t = blockIdx.x * blockDim.x + threadIdx.x; t < tiles; t += gridDim.x * blockDim.x)
      call(tile_bounds(t, rows, of.columns), AllSteps{of.steps});
    return;
  }
  for (std::uint32_t panel = blockIdx.x; panel < of.panels(); panel += gridDim.x) {
    const std::uint32_t panel_end = min((panel + 1) * kPanelColumns, of.columns);
    for (std::uint32_t begin = 0; begin < of.steps; begin += min(of.height, of.steps - begin)) {
      const std::uint32_t end = begin + min(of.height, of.steps - begin);
      for (std::uint32_t column = panel * kPanelColumns + threadIdx.x * kTileColumns; column < panel_end;
           column += blockDim.x * kTileColumns) {
        for (std::uint32_t row = 0; row < rows; row += kTileRows) {
          call(TileBounds{row, min(kTileRows, rows - row), column, min(kTileColumns, panel_end - column)},
               Steps{begin, end, end == of.steps});
        }
      }
      __syncthreads();  // no sum needs it: it keeps a block's threads at the same band, which is in the cache
    }
  }
}

/// The sums of a tile that the band before has passed on. Rows from at.rows on repeat the last one. `product` has so
/// many columns.
__device__ __forceinline__ void read_passed(const float* product, std::uint32_t columns, const TileBounds& at,
                                            Float4 (&sum)[kTileRows]) {
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    const std::size_t row = at.row + min(r, at.rows - 1);
    sum[r] = load4(product + row * columns + at.column, 1, at.columns);
  }
}

/// Passes the sums of a tile on to the next band.
__device__ __forceinline__ void pass_on(const Float4 (&sum)[kTileRows], std::uint32_t columns, const TileBounds& at,
                                        float* product) {
#pragma unroll
  for (std::uint32_t r = 0; r < kTileRows; ++r) {
    for (std::uint32_t c = 0; r < at.rows && c < at.columns; ++c) {
      product[std::size_t{at.row + r} * columns + at.column + c] = sum[r].column[c];
    }
  }
}

}  // namespace param_sync
