// Many blocks add into shared rows without locks.
#include <param_sync/row_table.hpp>

#include "tests/support/error_of.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <string>

namespace row_table_test {
namespace {

using param_sync::Rows;
using param_sync::RowTable;

constexpr std::uint32_t kColumns = 4;

/// Each thread adds (1, 2, 3, 4) so many times, to each of the keys in turn. Threads begin with different keys.
__global__ void add_rows(Rows rows, std::uint64_t keys, std::uint64_t first_key, std::uint64_t times) {
  const float row[kColumns] = {1, 2, 3, 4};
  const std::uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint64_t i = 0; i < times; ++i) {
    rows.add(gpusock::this_thread(), first_key + (thread * 7 + i) % keys, row);
  }
}

/// Each block adds a row of numbers, all threads together.
__global__ void add_by_blocks(Rows rows, const float* values, std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i) rows.add(gpusock::this_block(), i % 2 == 0 ? 5 : Rows::kKeyMax, values);
}

__global__ void add_one(Rows rows, std::uint64_t key, int* result) {
  const float one = 1;
  *result = rows.add(gpusock::this_thread(), key, &one);
}

TEST(RowTable, AMillionAdditionsOfManyBlocksAreAllThere) {
  gpusock::Context context;
  const std::uint64_t keys = 97, times = schedule_test::kFew ? 970 : 9'700;  // of each thread; 1 million or more
  constexpr std::uint64_t kBlocks = 52, kThreads = 2;
  RowTable table(context, keys, kColumns);
  for (int round = 0; round < 2; ++round) {
    table.clear();
    gpusock::launch(context, {.grid = kBlocks, .block = kThreads}, add_rows, table.rows(), keys, std::uint64_t{1000},
                    times);
    context.synchronize();
    const RowTable::Sums sums = table.sums();
    ASSERT_EQ(sums.keys.size(), keys);
    for (std::uint64_t key = 0; key < keys; ++key) {
      EXPECT_EQ(sums.keys[key], 1000 + key);
      for (std::uint32_t i = 0; i < kColumns; ++i) {
        EXPECT_EQ(sums.values[key * kColumns + i], static_cast<float>((i + 1) * kBlocks * kThreads * times / keys));
      }
    }
  }
}

TEST(RowTable, ABlockAddsARowTogether) {
  gpusock::Context context;
  constexpr std::uint32_t kWide = 100;
  RowTable table(context, 2, kWide);
  gpusock::DeviceBuffer<float> values(context, kWide);
  std::vector<float> numbers(kWide);
  for (std::uint32_t i = 0; i < kWide; ++i) numbers[i] = static_cast<float>(i);
  values.copy_in(numbers);
  gpusock::launch(context, {.grid = 3, .block = 32}, add_by_blocks, table.rows(), values.data(), std::uint64_t{10});
  context.synchronize();
  const RowTable::Sums sums = table.sums();
  EXPECT_EQ(sums.keys, (std::vector<std::uint64_t>{5, Rows::kKeyMax}));
  for (std::uint32_t i = 0; i < 2 * kWide; ++i) EXPECT_EQ(sums.values[i], static_cast<float>(15 * (i % kWide)));
}

TEST(RowTable, AFullOneTakesNoOtherRowsAndSaysSo) {
  gpusock::Context context;
  RowTable table(context, 3, 1);  // of 4 cells
  const gpusock::Mapped<int> result(context, 1);
  const auto add = [&](std::uint64_t key) {
    gpusock::launch(context, {}, add_one, table.rows(), key, result.data());
    context.synchronize();
    return result[0];
  };
  for (std::uint64_t key = 0; key < 4; ++key) EXPECT_EQ(add(key * 11), 0);
  EXPECT_EQ(table.sums().keys, (std::vector<std::uint64_t>{0, 11, 22, 33}));
  EXPECT_EQ(add(44), -ENOSPC);
  EXPECT_EQ(add(22), 0) << "rows that are there still grow";
  EXPECT_EQ(add(Rows::kKeyMax + 1), -EINVAL);
  const std::string says = gpusock::test::error_of([&] { table.check(); });
  EXPECT_NE(says.find("2 rows could not be added to a table of 4: make it with room for all keys"), std::string::npos)
      << says;
  table.clear();
  table.check();
  EXPECT_EQ(add(44), 0);
  EXPECT_EQ(table.sums().values, std::vector<float>{1});
}

TEST(RowTable, RefusesSizesThatItCannotHave) {
  gpusock::Context context;
  for (const std::uint32_t rows : {0u, 1u}) {
    const std::string says = gpusock::test::error_of([&] { RowTable(context, rows, 1 - rows); });
    EXPECT_NE(says.find("take 1 to 4294967296 rows of 1 or more"), std::string::npos) << says;
  }
}

}  // namespace
}  // namespace row_table_test
