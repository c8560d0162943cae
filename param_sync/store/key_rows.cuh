#pragma once
/// @file Which rows the keys of a range have at their owner.

#include "param_sync/codec/key_cells.cuh"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cstdint>

namespace param_sync::store {

/// Which rows the keys of a range have, in device memory. A key has its row for ever once a worker has named it.
struct KeyRows {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};  ///< no row

  codec::KeyCells cells;             ///< where keys are
  std::uint32_t* of_cell = nullptr;  ///< by cell: the row of its key, kNone at first
  std::uint32_t* used = nullptr;     ///< how many rows have keys, or had been wanted
  std::uint64_t rows = 0;            ///< how many rows there are

  /// The row of a key, which gets one if it has none; kNone if there are no more. Several threads may call at the same
  /// time, each with a key of its own.
  __device__ std::uint32_t row_of(std::uint64_t key) const {
    const std::int64_t cell = cells.cell_of(key);
    if (cell < 0) return kNone;
    std::uint32_t& row = of_cell[cell];
    if (row != kNone) return row;
    // relaxed: threads of one block alone use it, which barriers order
    const std::uint32_t next = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_device>(*used).fetch_add(
        1, cuda::memory_order_relaxed);
    if (next < rows) row = next;
    return row;
  }
};

}  // namespace param_sync::store
