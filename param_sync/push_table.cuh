#pragma once
/// @file A push of the rows that many blocks have summed in a table (rows.cuh), such as the gradients of those rows of
/// an embedding that a batch has used: one row goes over the network, however often the batch has used it. For sources
/// that are compiled for the device.

#include "param_sync/codec/own_share.cuh"
#include "param_sync/rows.cuh"
#include "param_sync/store.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

namespace store {

/// Sorts words; their number is a power of two (Batcher, "Sorting networks and their applications", 1968). A block of
/// threads calls it.
__device__ inline void sort(const cooperative_groups::thread_block& block, std::uint64_t* words, std::uint64_t count) {
  for (std::uint64_t run = 2; run <= count; run *= 2) {
    for (std::uint64_t apart = run / 2; apart != 0; apart /= 2) {
      for_own_share(count / 2, [&](std::uint64_t pair) {
        const std::uint64_t low = pair / apart * 2 * apart + pair % apart, high = low + apart;
        const bool ascends = (low & run) == 0;
        const std::uint64_t a = words[low], b = words[high];
        if ((a > b) != ascends) return;
        words[low] = b;
        words[high] = a;
      });
      block.sync();
    }
  }
}

}  // namespace store

/// Pushes the rows of a table, whose keys are numbers of rows in the range, as push_rows() does, and removes them from
/// the table. No kernel adds to the table meanwhile: launch this one after those on the same stream. The host calls
/// RowTable::check() once in a while: rows that a table had no room for are not pushed.
///
/// `order`: memory for as many words as the table has cells, which all threads of the block share. A block of threads
/// calls it.
///
/// Errors: those of push_rows(), and -EINVAL, with which nothing is pushed: a key is no row of the range, the table's
/// rows have another length than the store's, the table has more than 2^31 cells, or more rows than
/// StoreOptions::rows_max.
__device__ inline int push_table(const cooperative_groups::thread_block& block, const StoreHandle& handle,
                                 unsigned range, const Rows& table, std::uint64_t* order,
                                 gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  constexpr std::uint64_t kFree = ~std::uint64_t{0};  // comes after all rows
  constexpr std::uint64_t kCellsMax = std::uint64_t{1} << 31;
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count || table.columns != worker.row_floats || table.cells > kCellsMax) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const std::uint64_t rows = worker.ranges[range].floats / worker.row_floats;
  bool wrong = false;
  for_own_share(table.cells, [&](std::uint64_t cell) {
    const std::uint64_t key = table.keys[cell];  // plus 1
    wrong = wrong || key > rows;
    order[cell] = key == 0 ? kFree : (key - 1) << 32 | cell;
  });
  if (__syncthreads_or(wrong) != 0) return -EINVAL;
  store::sort(block, order, table.cells);
  std::uint64_t count = 0;
  for (std::uint64_t step = table.cells; step != 0; step /= 2) {  // the first free cell in the order
    if (count + step <= table.cells && order[count + step - 1] != kFree) count += step;
  }
  if (count > worker.named[range].rows_max) return -EINVAL;
  const auto cell_of = [&](std::uint64_t row) { return order[row] & 0xffff'ffffu; };
  const int error = store::push_rows_from(
      block, handle, range, count, [&](std::uint64_t row) { return static_cast<std::uint32_t>(order[row] >> 32); },
      [&](std::uint64_t row, std::uint64_t i) { return table.value(cell_of(row), i); }, until);
  for_own_share(count, [&](std::uint64_t row) {
    const std::uint64_t cell = cell_of(row);
    table.keys[cell] = 0;
    for (std::uint32_t i = 0; i < table.pairs_of_row(); ++i) table.pairs[cell * table.pairs_of_row() + i] = 0;
  });
  block.sync();
  return error;
}

}  // namespace param_sync
