// Pushes of the rows that blocks have summed in a table.
#include "param_sync/push_table.cuh"
#include "param_sync/row_table.hpp"
#include "tests/unit/store/stores.cuh"

#include <random>

namespace store_test {
namespace {

using param_sync::Rows;
using param_sync::RowTable;

constexpr std::uint32_t kWidth = 3;

/// Each block adds ones to the rows that it is given, a row at a time.
__global__ void add_rows(Rows table, const std::uint64_t* keys, std::uint64_t count, const float* ones) {
  for (std::uint64_t i = blockIdx.x; i < count; i += gridDim.x) table.add(gpusock::this_block(), keys[i], ones);
}

__global__ void push_a_table(StoreHandle store, Rows table, std::uint64_t* order, int* result) {
  const int error = param_sync::push_table(gpusock::this_block(), store, 0, table, order,
                                           gpusock::Deadline::after_ns(gpusock::kPatienceNs));
  if (threadIdx.x == 0) *result = error;
}

/// A rank that sums rows in a table, and pushes them.
class Summer {
 public:
  Summer(Rank& rank, std::uint64_t rows_max, std::uint32_t columns = kWidth)
      : rank_(rank),
        table_(rank.context, rows_max, columns),
        order_(rank.context, table_.rows().cells),
        ones_(rank.context, columns) {
    ones_.copy_in(std::vector<float>(columns, 1));
  }

  void start(const std::vector<std::uint64_t>& keys, unsigned threads) {
    keys_.emplace(rank_.context, keys.size() + 1);
    keys_->copy_in(keys);
    gpusock::launch(rank_.context, {.grid = 3, .block = 2, .stream = &stream_}, add_rows, table_.rows(), keys_->data(),
                    keys.size(), ones_.data());
    gpusock::launch(rank_.context, {.block = threads, .stream = &stream_}, push_a_table, rank_.job.store, table_.rows(),
                    order_.data(), result_.data());
  }
  int wait() {
    stream_.synchronize();
    return result_[0];
  }
  bool is_empty() const { return table_.sums().keys.empty(); }

 private:
  Rank& rank_;
  RowTable table_;
  gpusock::Stream stream_{rank_.context};
  gpusock::DeviceBuffer<std::uint64_t> order_;
  gpusock::DeviceBuffer<float> ones_;
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> keys_;
  gpusock::Mapped<int> result_{rank_.context, 1};
};

/// Batches use some rows often, and most rows never. Bytes are those of the rows that they use.
TEST(Tables, EachRowIsPushedOnceWithItsSum) {
  constexpr std::uint32_t kRows = 1'000;
  for (const param_sync::AnyClock& clock : {param_sync::AnyClock(Bsp()), param_sync::AnyClock(Async())}) {
    Stores stores({.clock = clock, .row_floats = kWidth, .rows_max = kRows}, {std::vector<float>(kRows * kWidth)});
    std::vector<std::unique_ptr<Summer>> summers;
    std::vector<float> expected(kRows * kWidth);
    std::vector<std::size_t> rows_of(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) summers.push_back(std::make_unique<Summer>(stores[rank], 150));
    std::mt19937 random(5);
    for (const std::size_t uses : {std::size_t{400}, std::size_t{0}, std::size_t{1}}) {
      for (int rank = 0; rank < kRanks; ++rank) {
        std::vector<std::uint64_t> keys;
        std::vector<bool> used(kRows);
        for (std::size_t i = 0; i < uses; ++i) {
          keys.push_back(random() % 100 * (random() % 2 == 0 ? 1 : kRows / 100) % kRows);
          used[keys.back()] = true;
          for (std::uint32_t column = 0; column < kWidth; ++column) expected[keys.back() * kWidth + column] += 1;
        }
        rows_of[static_cast<std::size_t>(rank)] += static_cast<std::size_t>(std::count(used.begin(), used.end(), true));
        summers[static_cast<std::size_t>(rank)]->start(keys, rank == 0 ? 1 : 40);
      }
      for (const auto& summer : summers) {
        ASSERT_EQ(summer->wait(), 0);
        EXPECT_TRUE(summer->is_empty());
      }
    }
    stores.meet();
    EXPECT_EQ(stores[1].weights_now(), expected);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(stores[rank].store->traffic()[0].pushed_bytes,
                3 * 24 + 4 * (1 + kWidth) * rows_of[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST(Tables, WhatIsNoRowOfTheRangeIsRefused) {
  Stores stores({.clock = Async(), .row_floats = kWidth, .rows_max = 10}, {std::vector<float>(10 * kWidth)});
  Summer summer(stores[0], 20);
  summer.start({3, 10}, 2);
  EXPECT_EQ(summer.wait(), -EINVAL);
  EXPECT_FALSE(summer.is_empty());
  Summer other(stores[1], 20, kWidth + 1);
  other.start({3}, 2);
  EXPECT_EQ(other.wait(), -EINVAL);
  EXPECT_EQ(stores[2].weights_now(), std::vector<float>(10 * kWidth));
  stores[0].store->check();
}

/// Also of one cell, and of all cells.
TEST(Tables, SmallTablesAndFullOnesArePushed) {
  for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{64}}) {
    Stores stores({.clock = Async(), .row_floats = kWidth, .rows_max = 200}, {std::vector<float>(200 * kWidth)});
    Summer summer(stores[0], rows);
    std::vector<std::uint64_t> keys;
    const std::uint64_t cells = std::bit_ceil(rows + rows / 2);
    for (std::uint64_t i = 0; i < cells; ++i) keys.push_back(i * 199 % 200);
    summer.start(keys, 5);
    ASSERT_EQ(summer.wait(), 0);
    const std::vector<float> weights = stores[0].weights_now();
    EXPECT_EQ(std::count(weights.begin(), weights.end(), 1.0f), static_cast<std::ptrdiff_t>(cells * kWidth));
  }
}

}  // namespace
}  // namespace store_test
