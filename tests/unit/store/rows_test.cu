// Pushes and pulls of some rows of a range.
#include "tests/unit/store/stores.cuh"

#include <variant>

namespace store_test {
namespace {

constexpr std::uint64_t kColumns = 3;

/// Pushes every `apart`-th row, from row `first` on; then pulls the same rows in the other order.
struct RowsJob {
  StoreHandle store;
  unsigned range = 0;
  std::uint32_t* rows = nullptr;
  float* floats = nullptr;
  std::uint64_t count = 0;
  std::uint64_t* seen = nullptr;
  int pushes = 1;
  int* result = nullptr;
};

/// What a rank pushes for a weight.
__host__ __device__ inline float pushed_of(int rank, std::uint64_t weight) {
  return static_cast<float>(weight % 17 + static_cast<std::uint64_t>(rank));
}

template <class Group>
__device__ void move_rows(const Group& group, const RowsJob& job) {
  const auto deadline = gpusock::Deadline::after_ns(gpusock::kPatienceNs);
  int error = 0;
  for (int i = 0; i < job.pushes && error == 0; ++i) {
    error = param_sync::push_rows(group, job.store, job.range, job.rows, job.count, job.floats, deadline);
  }
  if (group.thread_rank() == 0) {
    for (std::uint64_t i = 0, j = job.count; i + 1 < j; ++i, --j) {
      const std::uint32_t row = job.rows[i];
      job.rows[i] = job.rows[j - 1];
      job.rows[j - 1] = row;
    }
  }
  group.sync();
  if (error == 0) {
    error = param_sync::pull_rows(group, job.store, job.range, job.rows, job.count, job.floats, job.seen, deadline);
  }
  if (group.thread_rank() == 0) *job.result = error;
}

/// Pushes rows and pulls the same ones.
__global__ void push_and_pull(RowsJob job) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(gpusock::kPatienceNs);
  int error = 0;
  if (job.pushes != 0) {
    error = param_sync::push_rows(block, job.store, job.range, job.rows, job.count, job.floats, deadline);
  }
  if (error == 0) {
    error = param_sync::pull_rows(block, job.store, job.range, job.rows, job.count, job.floats, job.seen, deadline);
  }
  if (threadIdx.x == 0) *job.result = error;
}

__global__ void move_rows_by_block(RowsJob job) { move_rows(gpusock::this_block(), job); }
__global__ void move_rows_by_thread(RowsJob job) { move_rows(gpusock::this_thread(), job); }

/// A rank that moves rows of range 0.
struct RowMover {
  RowMover(Rank& rank, const std::vector<std::uint32_t>& of)
      : context(rank.context),
        numbers(of),
        rows(context, std::max<std::size_t>(1, of.size())),
        floats(context, std::max<std::size_t>(1, of.size() * kColumns)),
        seen(context, kRanks),
        result(context, 1) {
    if (!of.empty()) rows.copy_in(of);
    std::vector<float> all;
    for (const std::uint32_t row : of) {
      for (std::uint64_t i = 0; i < kColumns; ++i) all.push_back(pushed_of(rank.job.rank, row * kColumns + i));
    }
    if (!all.empty()) floats.copy_in(all);
    job.store = rank.job.store;
    job.rows = rows.data();
    job.floats = floats.data();
    job.count = of.size();
    job.seen = seen.data();
    job.result = result.data();
  }

  void start(bool by_thread) {
    gpusock::launch(context, {.block = by_thread ? 1u : 3u, .stream = &stream},
                    by_thread ? move_rows_by_thread : move_rows_by_block, job);
  }
  /// The rows as they were read, in the order of their numbers. Empty if a call has failed.
  std::vector<float> wait() {
    stream.synchronize();
    EXPECT_EQ(result[0], 0);
    std::vector<float> all(numbers.size() * kColumns), in_order;
    if (result[0] != 0 || all.empty()) return {};
    floats.copy_out(all);
    for (std::size_t row = numbers.size(); row-- > 0;) {
      in_order.insert(in_order.end(), &all[row * kColumns], &all[row * kColumns] + kColumns);
    }
    return in_order;
  }

  gpusock::Context& context;
  gpusock::Stream stream{context};
  std::vector<std::uint32_t> numbers;
  gpusock::DeviceBuffer<std::uint32_t> rows;
  gpusock::DeviceBuffer<float> floats;
  gpusock::Mapped<std::uint64_t> seen;
  gpusock::Mapped<int> result;
  RowsJob job;
};

std::vector<std::uint32_t> every(std::uint32_t apart, std::uint32_t first, std::uint32_t end) {
  std::vector<std::uint32_t> rows;
  for (std::uint32_t row = first; row < end; row += apart) rows.push_back(row);
  return rows;
}

/// Rank r pushes every (r + 2)-th row. With Bsp no rank reads before all have pushed.
TEST(Stores, RowsOfARangeArePushedAndPulled) {
  for (const param_sync::AnyClock& clock : {param_sync::AnyClock(Bsp()), param_sync::AnyClock(Async())}) {
    for (const std::uint32_t rows : {1u, 7u, 20'000u}) {  // the last ones are many rings
      SCOPED_TRACE(rows);
      Stores stores({.clock = clock, .row_floats = kColumns, .rows_max = rows},
                    {std::vector<float>(rows * kColumns, 1.0f)});
      std::vector<std::unique_ptr<RowMover>> movers;
      for (int rank = 0; rank < kRanks; ++rank) {
        movers.push_back(
            std::make_unique<RowMover>(stores[rank], every(static_cast<std::uint32_t>(rank) + 2, 0, rows)));
        movers.back()->start(rank == 1);
      }
      std::vector<float> expected(rows * kColumns, 1.0f);
      for (int rank = 0; rank < kRanks; ++rank) {
        for (const std::uint32_t row : movers[static_cast<std::size_t>(rank)]->numbers) {
          for (std::uint64_t i = 0; i < kColumns; ++i) {
            expected[row * kColumns + i] += pushed_of(rank, row * kColumns + i);
          }
        }
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<float> read = movers[static_cast<std::size_t>(rank)]->wait();
        if (!std::holds_alternative<Bsp>(clock)) continue;  // others may not have pushed yet
        std::vector<float> wanted;
        for (const std::uint32_t row : movers[static_cast<std::size_t>(rank)]->numbers) {
          wanted.insert(wanted.end(), &expected[row * kColumns], &expected[row * kColumns] + kColumns);
        }
        EXPECT_EQ(read, wanted) << "rank " << rank;
        EXPECT_EQ(movers[static_cast<std::size_t>(rank)]->seen[0], 1);
      }
      stores.meet();
      EXPECT_EQ(stores[2].weights_now(), expected);
    }
  }
}

/// Rows of small integers and scales of powers of two: bfloat16 and float16 have these numbers, and int8 is close.
TEST(Stores, RowsAreSentInAnyFormat) {
  constexpr std::uint32_t kRows = 5'000;
  for (const auto format :
       {param_sync::WireFormat::bfloat16, param_sync::WireFormat::float16, param_sync::WireFormat::int8}) {
    StoreOptions options{.clock = Bsp(), .row_floats = kColumns, .rows_max = kRows};
    options.push_format = options.pull_format = format;
    Stores stores(options, {std::vector<float>(kRows * kColumns)});
    std::vector<std::unique_ptr<RowMover>> movers;
    for (int rank = 0; rank < kRanks; ++rank) {
      movers.push_back(std::make_unique<RowMover>(stores[rank], every(2, 1, kRows)));
      movers.back()->start(rank == 1);
    }
    for (const auto& mover : movers) {
      const std::vector<float> read = mover->wait();
      ASSERT_EQ(read.size(), mover->numbers.size() * kColumns);
      for (std::size_t i = 0; i < read.size(); ++i) {
        const std::uint64_t weight = mover->numbers[i / kColumns] * kColumns + i % kColumns;
        const float expected = pushed_of(0, weight) + pushed_of(1, weight) + pushed_of(2, weight);
        ASSERT_NEAR(read[i], expected, format == param_sync::WireFormat::int8 ? 0.5f : 0.0f) << weight;
      }
    }
  }
}

/// What a rank has pushed before does not come back.
TEST(Stores, RowsThatAreNotPushedCountAsZero) {
  Stores stores({.clock = Bsp(), .row_floats = kColumns, .rows_max = 6}, {std::vector<float>(6 * kColumns)});
  std::vector<float> expected(6 * kColumns);
  for (const std::vector<std::uint32_t>& rows : {every(1, 0, 6), every(2, 0, 6), {}}) {
    std::vector<std::unique_ptr<RowMover>> movers;
    for (int rank = 0; rank < kRanks; ++rank) {
      movers.push_back(std::make_unique<RowMover>(stores[rank], rows));
      movers.back()->job.pushes = 2;  // the second one waits in the ring for the others' first
      movers.back()->start(false);
      for (const std::uint32_t row : rows) {
        for (std::uint64_t i = row * kColumns; i < (row + 1) * kColumns; ++i) expected[i] += 2 * pushed_of(rank, i);
      }
    }
    for (const auto& mover : movers) mover->wait();
  }
  stores.meet();
  EXPECT_EQ(stores[0].weights_now(), expected);
}

TEST(Stores, RowsThatCannotBeRightEndTheirRankAlone) {
  const std::vector<std::uint32_t> bad[] = {{3, 2}, {2, 2}, {0, 7}, {~0u}};
  for (const auto& rows : bad) {
    Stores stores({.clock = Async(), .row_floats = kColumns, .rows_max = 7}, {std::vector<float>(7 * kColumns)});
    RowMover wrong(stores[1], rows);
    wrong.start(false);
    wrong.stream.synchronize();
    EXPECT_NE(wrong.result[0], 0);
    EXPECT_NE(failure_of(stores[0]).find("rank 1 has sent a request that does not follow"), std::string::npos);
    RowMover right(stores[2], {0, 6});
    right.start(true);
    EXPECT_EQ(right.wait().size(), 2 * kColumns) << "the others go on";
  }
}

/// Calls that each name these rows. Returns the result.
int name(Rank& rank, const std::vector<std::uint32_t>& rows, bool pushes, std::vector<float>* read = nullptr) {
  RowMover mover(rank, rows);
  mover.job.pushes = pushes ? 1 : 0;
  gpusock::launch(rank.context, {.block = 3, .stream = &mover.stream}, push_and_pull, mover.job);
  mover.stream.synchronize();
  if (read != nullptr) {
    read->resize(rows.size() * kColumns);
    mover.floats.copy_out(*read);
  }
  return mover.result[0];
}

TEST(Stores, RowsThatAreNamedAgainAreNotSentAgain) {
  constexpr std::uint64_t kRequest = 24, kNumber = 4, kRow = kColumns * 4;
  Stores stores({.clock = Async(), .row_floats = kColumns, .rows_max = 90}, {std::vector<float>(90 * kColumns)});
  std::uint64_t pushed = 0, asked = 0;
  std::vector<float> expected(90 * kColumns), read;
  const auto expect = [&](const std::vector<std::uint32_t>& rows, bool pushes, bool named_before) {
    const std::uint64_t names = named_before ? 0 : rows.size() * kNumber;
    ASSERT_EQ(name(stores[1], rows, pushes, &read), 0);
    if (pushes) pushed += kRequest + names + rows.size() * kRow;
    asked += kRequest + (pushes ? 0 : names);  // a pull after a push names its rows again
    const param_sync::StoreTraffic traffic = stores[1].store->traffic()[0];
    EXPECT_EQ(traffic.pushed_bytes, pushed);
    EXPECT_EQ(traffic.asked_bytes, asked);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::uint64_t column = 0; column < kColumns; ++column) {
        float& weight = expected[rows[i] * kColumns + column];
        if (pushes) weight += pushed_of(1, rows[i] * kColumns + column);
        EXPECT_EQ(read[i * kColumns + column], weight) << rows[i];
      }
    }
  };
  expect(every(3, 0, 90), true, false);
  expect(every(3, 0, 90), true, true);
  expect(every(3, 1, 90), true, false);  // as many rows
  expect(every(3, 0, 90), false, false);
  expect(every(3, 0, 60), true, false);  // only fewer
  expect({}, true, false);
  expect({}, false, true);
  expect({5, 2, 5}, false, false);
  expect({2, 5, 5}, false, false);  // the same ones in another order
  expect({89}, true, false);
  EXPECT_EQ(stores[1].weights_now(), expected);
}

TEST(Stores, RowsThatArePulledInAnyOrderAreNotPushedSo) {
  Stores stores({.clock = Async(), .row_floats = kColumns, .rows_max = 7}, {std::vector<float>(7 * kColumns)});
  EXPECT_EQ(name(stores[1], {6, 2, 3}, false), 0);
  EXPECT_NE(name(stores[1], {6, 2, 3}, true), 0);
  EXPECT_NE(failure_of(stores[0]).find("that do not ascend"), std::string::npos);
}

TEST(Stores, MoreRowsThanAgreedAreRefusedAndNothingElse) {
  Stores stores({.clock = Async(), .row_floats = kColumns, .rows_max = 3}, {std::vector<float>(7 * kColumns)});
  EXPECT_EQ(name(stores[0], every(1, 0, 4), true), -EINVAL);
  EXPECT_EQ(name(stores[0], every(1, 0, 4), false), -EINVAL);
  EXPECT_EQ(name(stores[0], every(1, 0, 3), true), 0);
}

TEST(Stores, RangesAreWholeNumbersOfRows) {
  Groups groups(1);
  for (const std::size_t row : {std::size_t{0}, std::size_t{2}, std::size_t{6}}) {
    EXPECT_NE(error_of<gpusock::Error>([&] {
                Store(groups.group(0), Weights{{1, 2, 3}}, {.row_floats = row});
              }).find("a range is a whole number of rows"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace store_test
