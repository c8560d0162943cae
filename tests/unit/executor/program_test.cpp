// How schedules become tables, and tensors parts.
#include "param_sync/executor/program.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

namespace {

using namespace param_sync;
using executor::Cut;
using executor::Floats;

TEST(CutOfATensor, PassesCoverEachChunkOnceAndInOrder) {
  for (const std::uint64_t floats : {0, 1, 2, 7, 100, 1001}) {
    for (const std::uint32_t chunks : {1u, 3u, 16u, 200u}) {
      for (const std::uint64_t unit : {1, 3, 64, 5000}) {
        const Cut cut{floats, unit, chunks};
        std::uint64_t next = 0;
        for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
          for (std::uint64_t pass = 0; pass < cut.passes(); ++pass) {
            const Floats part = cut.part(chunk, pass);
            ASSERT_EQ(part.begin, next);
            ASSERT_LE(part.count(), unit);
            next = part.end;
          }
        }
        EXPECT_EQ(next, floats);
        EXPECT_GE(cut.passes(), 1u);
      }
    }
  }
}

/// Recursive doubling sends what a sum was between two ops that add to it.
TEST(Programs, SumsWhosePartsAreUsedAreMadeInTheScheduleOrder) {
  const auto operands_of = [](const char* scheme) {
    const auto schedule = executor_test::make(scheme, 4);
    return executor::program_of(schedule, 1, executor::channels_of({schedule}, 1), {.rank_order = true}).operands;
  };
  EXPECT_TRUE(operands_of("butterfly").empty());
  // Rank 1 receives from ranks 2, 3 and 0, in this order.
  EXPECT_EQ(operands_of("ps:even"), (std::vector<int>{executor::kOperandArriving, executor::kOperandOwn, 0, 1}));
}

TEST(Programs, WeightsOfAParameterServerAreKnown) {
  const auto schedule = executor_test::make("ps:even", 3);
  const auto program = executor::program_of(schedule, 0, executor::channels_of({schedule}, 0), {.weights_apart = true});
  int gradients = 0, weights = 0;
  for (const executor::LaneOp& op : program.ops) ++(op.of_weights ? weights : gradients);
  EXPECT_EQ(gradients, 4);  // two sent, two added
  EXPECT_EQ(weights, 5);    // applied, two sent, two received
}

}  // namespace
