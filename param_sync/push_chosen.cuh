#pragma once
/// @file Pushes of the rows that matter: of the largest ones, which keeps the others for later pushes (error feedback:
/// Stich et al., "Sparsified SGD with memory", NeurIPS 2018), and of those that are not 0. For sources that are
/// compiled for the device.

#include "param_sync/codec/largest.cuh"
#include "param_sync/codec/own_share.cuh"
#include "param_sync/store.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Which rows push_chosen() pushes.
enum class Choice : std::uint8_t {
  largest,  ///< those with the largest sums of squares
  random    ///< any that are not 0; which ones, the clock and the rank decide
};

/// Memory of push_chosen() for one range. It is the program's, in device memory.
struct Withheld {
  float* sum = nullptr;           ///< floats of the range, zero before the first push: what was not pushed yet
  std::uint32_t* rows = nullptr;  ///< as many as a push has rows at most
};

/// How push_chosen() chooses.
struct Choosing {
  std::uint32_t rows_max = 1;       ///< how many rows a push has at most; if all of the range take no more bytes: all
  Choice choice = Choice::largest;  ///< which ones
  bool keeps_others = true;         ///< false: what is not pushed is lost, as if its gradient were 0
};

namespace store {

/// The size by which rows are compared: 0 if a row is 0.
__device__ inline float size_of_row(const float* row, std::uint64_t floats) {
  if (floats == 1) return *row;
  float sum = 0, largest = 0;
  for (std::uint64_t i = 0; i < floats; ++i) {
    sum += row[i] * row[i];
    largest = fmaxf(largest, fabsf(row[i]));
  }
  return sum != 0 ? sum : largest;  // squares may be too small for a float
}

/// True if a push of the whole range takes no more words than one of so many rows, with their numbers.
__device__ inline bool takes_all(const Worker& worker, unsigned range, std::uint64_t rows) {
  const std::uint64_t of_rows = rows * (1 + codec::words_of(worker.push_format, worker.row_floats));
  return codec::words_of(worker.push_format, worker.ranges[range].floats) <= of_rows;
}

}  // namespace store

/// Adds gradients of a range to what earlier calls have not pushed, and pushes the rows of the sum that are chosen, as
/// push_rows() does. Rows that are 0 are not pushed. The others stay in `withheld`. To push all of it, before a
/// training ends for example, choose as many rows as the range has. Rounding of StoreOptions::push_format is not kept.
///
/// `gradients` may be null: then nothing is added. A block of threads calls it. Blocks of fewer than 256 threads choose
/// more slowly.
///
/// Errors: those of push_rows(), and -EINVAL for a range of more than 2^32 - 1 rows.
__device__ inline int push_chosen(const cooperative_groups::thread_block& block, const StoreHandle& handle,
                                  unsigned range, const float* gradients, const Withheld& withheld,
                                  const Choosing& choosing,
                                  gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const std::uint64_t floats = worker.ranges[range].floats, row_floats = worker.row_floats, rows = floats / row_floats;
  if (rows > ~std::uint32_t{0}) return -EINVAL;
  const bool takes_all = store::takes_all(worker, range, min(rows, std::uint64_t{choosing.rows_max}));
  if (!takes_all && choosing.rows_max > worker.named[range].rows_max) return -EINVAL;
  for_own_share(floats, [&](std::uint64_t i) {
    const float added = gradients == nullptr ? 0 : gradients[i];
    withheld.sum[i] = choosing.keeps_others ? withheld.sum[i] + added : added;
  });
  block.sync();
  const auto forget = [&](std::uint64_t i) { withheld.sum[i] = 0; };
  if (takes_all) {
    const int error = push(block, handle, range, withheld.sum, until);
    for_own_share(floats, forget);
    block.sync();
    return error;
  }
  const std::uint64_t step = worker.clock_of(range) * static_cast<std::uint64_t>(worker.ranks) +
                             static_cast<std::uint64_t>(worker.rank);
  const auto size_of = [&](std::uint32_t row) {
    const float size = store::size_of_row(withheld.sum + row * row_floats, row_floats);
    return choosing.choice == Choice::random && size != 0 ? codec::random_number(row, step) : size;
  };
  const std::uint32_t chosen = codec::take_largest(
      static_cast<std::uint32_t>(rows), choosing.rows_max, size_of,
      [&](std::uint32_t row, std::uint32_t at) { withheld.rows[at] = row; });
  block.sync();
  const auto float_of = [&](std::uint64_t row, std::uint64_t i) -> float& {
    return withheld.sum[withheld.rows[row] * row_floats + i];
  };
  const int error = store::push_rows_from(
      block, handle, range, chosen, [&](std::uint64_t row) { return withheld.rows[row]; }, float_of, until);
  for_own_share(chosen * row_floats, [&](std::uint64_t i) { float_of(i / row_floats, i % row_floats) = 0; });
  block.sync();
  return error;
}

/// Pushes the rows of a range that are not 0; all of them if that takes fewer bytes. So a kernel that sets gradients to
/// 0 which change nothing has a filter, such as the KKT filter of the parameter server (Li et al., OSDI 2014). It is a
/// push of the range in any case. With Update::proximal() see there.
///
/// `rows`: memory for as many numbers as the range has rows, which all threads of the block share. A block of threads
/// calls it. More rows than StoreOptions::rows_max are pushed as a whole range. Errors: those of push_chosen().
__device__ inline int push_nonzero(const cooperative_groups::thread_block& block, const StoreHandle& handle,
                                   unsigned range, const float* gradients, std::uint32_t* rows,
                                   gpusock::Deadline deadline = gpusock::Deadline::by_default()) {
  const store::Worker& worker = *handle.worker;
  if (range >= worker.range_count) return -EINVAL;
  const gpusock::Deadline until = executor::begun(deadline);
  const std::uint64_t row_floats = worker.row_floats, all = worker.ranges[range].floats / row_floats;
  if (all > ~std::uint32_t{0}) return -EINVAL;
  const auto count = static_cast<std::uint32_t>(all);
  const std::uint32_t chosen = codec::take_largest(
      count, count, [&](std::uint32_t row) { return store::size_of_row(gradients + row * row_floats, row_floats); },
      [&](std::uint32_t row, std::uint32_t at) { rows[at] = row; });
  block.sync();
  if (chosen > worker.named[range].rows_max || store::takes_all(worker, range, chosen))
    return push(block, handle, range, gradients, until);
  return store::push_rows_from(
      block, handle, range, chosen, [&](std::uint64_t row) { return rows[row]; },
      [&](std::uint64_t row, std::uint64_t i) { return gradients[rows[row] * row_floats + i]; }, until);
}

}  // namespace param_sync
