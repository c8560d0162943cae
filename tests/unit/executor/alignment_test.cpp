// After an odd number of floats a ring stands where 4 divides the position, and 8 does not. A GPU ends a kernel that
// makes a longer access there. These tests end so too where they are built to check it (gpusock_check_alignment).
#include "trial/local_ranks.hpp"
#include "tests/unit/executor/groups.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace {

using namespace param_sync;
using executor::LocalRanks;
using executor_test::kTimeoutNs;
using executor_test::make;
using group_test::Groups;

constexpr std::uint64_t kOdd = 1023;

/// Twice: the second run begins where the first one has left the rings.
TEST(Alignment, EachSchemeSendsOddNumbersOfFloats) {
  std::vector<schedule::Schedule> schedules;
  for (const std::string& scheme : schedule::scheme_names()) {
    schedule::Schedule made = make(scheme, 3);
    if (made.nodes() == 3) schedules.push_back(std::move(made));
  }
  LocalRanks ranks(schedules, gpusock::LinkKind::p2p, {}, kOdd);
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t index = 0; index < schedules.size(); ++index) {
      SCOPED_TRACE(schedules[index].scheme);
      ASSERT_NO_THROW(ranks.run(index, kOdd, kTimeoutNs));
    }
  }
}

TEST(Alignment, AGroupBroadcastsOddNumbersOfFloats) {
  Groups groups(kOdd);
  for (int turn = 0; turn < 2; ++turn) {
    const auto results = groups.run([](Group& group, float* data) { return group.broadcast({data, kOdd}, 1); });
    for (const auto& result : results) EXPECT_EQ(result[kOdd - 1], Groups::value(1, kOdd - 1));
  }
}

TEST(Alignment, ADeterministicGroupSumsOddNumbersOfFloats) {
  GroupOptions options;
  options.deterministic = true;
  Groups groups(kOdd, options);
  for (int turn = 0; turn < 2; ++turn) {
    const auto results = groups.run([](Group& group, float* data) { return group.all_reduce({data, kOdd}); });
    for (const auto& result : results) EXPECT_EQ(result[kOdd - 1], Groups::sum(kOdd - 1));
  }
}

#if defined(GPUSOCK_TEST_CHECKS_ALIGNMENT)
struct Header {
  std::uint32_t kind;
  std::uint64_t floats;
};

[[gnu::noinline]] void write_at(void* memory, const Header& header) { *static_cast<Header*>(memory) = header; }

/// That the check is there, also of a copy of a whole structure.
TEST(AlignmentDeathTest, AMisalignedCopyEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  alignas(8) std::byte memory[2 * sizeof(Header)];
  EXPECT_DEATH(write_at(memory + 4, {1, 2}), "misaligned address");
}
#endif

}  // namespace
