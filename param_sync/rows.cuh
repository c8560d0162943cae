#pragma once
/// @file Rows of floats by key, into which many blocks add at the same time without locks: a layer's partial outputs,
/// or the gradients of those rows of an embedding that a batch has used. A hash table with open addressing. (Wei et
/// al., "Managed Communication and Consistency for Fast Data-Parallel Iterative Analytics", SoCC 2015, has such a table
/// for updates that wait to be sent.) Kernels use this file; row_table.hpp has the memory and the host's calls.
///
/// The words are in device memory and used with device scope.
///   label  operation                      order    partner  data protected
///   R1     see param_sync/codec/key_cells.cuh
///   R2     pairs[i].compare_exchange      relaxed  R2       nothing: sums are complete when all kernels have ended
/// They are relaxed because they order nothing: floats are 0 from the beginning and are only added to, and no key is
/// ever taken out or replaced. So it makes no difference which block has inserted a row. The end of a kernel orders its
/// additions before later reads of the sums.

#include "param_sync/codec/key_cells.cuh"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <bit>
#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Two columns of a row. A device without atomic addition of floats changes both at once.
struct FloatPair {
  float first = 0;   ///< value of the even column
  float second = 0;  ///< value of the next column
};

/// The table in the form that kernels use; they take it by value. Pointers point to device memory.
struct Rows {
  std::uint64_t* keys = nullptr;     ///< for each cell: key + 1, or 0 if the cell is free
  std::uint64_t* pairs = nullptr;    ///< for each cell: one FloatPair for every two columns
  std::uint64_t* refused = nullptr;  ///< how many rows could not be added
  std::uint64_t cells = 0;           ///< number of cells: a power of two
  std::uint32_t columns = 0;         ///< floats of a row

  static constexpr std::uint64_t kKeyMax = codec::KeyCells::kKeyMax;  ///< the largest key

  /// How many words of `pairs` a row has.
  GPUSOCK_FN std::uint32_t pairs_of_row() const { return columns / 2 + columns % 2; }

  /// Adds `columns` floats to the row of this key, and makes the row if it is not there. All threads of the group call.
  /// Any number of groups may call at the same time, also for the same row. Never waits. Returns 0; -ENOSPC if other
  /// rows occupy all cells; -EINVAL for a key above kKeyMax. The host learns of refused rows from RowTable::check().
  template <class Group>
  __device__ int add(const Group& group, std::uint64_t key, const float* values) const {
    const std::int64_t cell = cell_of(key);
    const auto rank = static_cast<std::uint32_t>(group.thread_rank()), size = static_cast<std::uint32_t>(group.size());
    if (cell < 0) {
      // relaxed: it only counts
      if (rank == 0) Word(*refused).fetch_add(1, cuda::memory_order_relaxed);
      return static_cast<int>(cell);
    }
    std::uint64_t* const row = pairs + static_cast<std::uint64_t>(cell) * pairs_of_row();
    for (std::uint32_t i = rank; i < pairs_of_row(); i += size) {
      add_to(row[i], {values[2 * i], 2 * i + 1 < columns ? values[2 * i + 1] : 0});
    }
    return 0;
  }

  /// Returns the cell of a key's row, or the error that add() returns. All threads of a group get the same result.
  __device__ std::int64_t cell_of(std::uint64_t key) const { return codec::KeyCells{keys, cells}.cell_of(key); }

  /// Returns a float of the row in a cell that has one. No kernel adds to the table.
  __device__ float value(std::uint64_t cell, std::uint64_t column) const {
    const std::uint64_t pair = pairs[cell * pairs_of_row() + column / 2];
    return __uint_as_float(static_cast<std::uint32_t>(pair >> 32 * (column % 2)));  // FloatPair::first is the lower
                                                                                    // half
  }

 private:
  using Word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;

  __device__ static void add_to(std::uint64_t& pair, const FloatPair& values) {
#if GPUSOCK_ON_GPU
    auto* const sums = reinterpret_cast<float*>(&pair);
    atomicAdd(sums, values.first);  // these replace R2
    atomicAdd(sums + 1, values.second);
#else
    const Word word(pair);
    std::uint64_t before = word.load(cuda::memory_order_relaxed);  // relaxed: R2 decides
    for (bool added = false; !added;) {
      const auto sums = std::bit_cast<FloatPair>(before);
      const FloatPair after{sums.first + values.first, sums.second + values.second};
      added = word.compare_exchange_weak(before, std::bit_cast<std::uint64_t>(after), cuda::memory_order_relaxed,
                                         cuda::memory_order_relaxed);  // R2
    }
#endif
  }
};

}  // namespace param_sync
