#pragma once
/// @file Where keys are in a hash table with open addressing, into which threads insert at the same time without locks.
///
/// The words are in device memory and used with device scope.
///   label  operation                      order    partner  data protected
///   R1     keys[cell].compare_exchange    relaxed  R1       nothing: it decides whose cell it is
/// It is relaxed because it orders nothing: no key is ever taken out or replaced while threads insert.

#include "param_sync/codec/mixed.hpp"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <cerrno>
#include <cstdint>

namespace param_sync::codec {

/// The cells of a table, which is in device memory.
struct KeyCells {
  static constexpr std::uint64_t kKeyMax = ~std::uint64_t{0} - 1;  ///< the largest key

  std::uint64_t* keys = nullptr;  ///< for each cell: key + 1, or 0 if the cell is free
  std::uint64_t cells = 0;        ///< number of cells: a power of two

  /// Returns the cell of a key, which gets a free one if it has none; -ENOSPC if other keys occupy all cells; -EINVAL
  /// for a key above kKeyMax. Any number of threads may call at the same time, also for the same key.
  __device__ std::int64_t cell_of(std::uint64_t key) const {
    if (key > kKeyMax) return -EINVAL;
    std::uint64_t cell = mixed(key) & (cells - 1);
    for (std::uint64_t tried = 0; tried < cells; ++tried) {
      if (is_of(keys[cell], key + 1)) return static_cast<std::int64_t>(cell);
      cell = (cell + 1) & (cells - 1);
    }
    return -ENOSPC;
  }

 private:
  /// True if the cell belongs to this key. A free cell is first given to the key.
  __device__ static bool is_of(std::uint64_t& key, std::uint64_t wanted) {
    const cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device> word(key);
    std::uint64_t found = word.load(cuda::memory_order_relaxed);  // relaxed: R1 decides
    if (found == 0 && word.compare_exchange_strong(found, wanted, cuda::memory_order_relaxed,
                                                   cuda::memory_order_relaxed)) {  // R1
      return true;
    }
    return found == wanted;
  }
};

}  // namespace param_sync::codec
