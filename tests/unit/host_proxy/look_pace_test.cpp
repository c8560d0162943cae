// When a receiver on a CPU lets a stream's bytes gather before it looks for them.
#include "ringbuf/look_pace.hpp"

#include <gtest/gtest.h>

namespace gpusock::ringbuf {
namespace {

/// How often a look reads the clock, which goes on by so much each time: 0 where it does not wait.
int readings_before_look(const LookPace& pace, std::uint64_t step_ns) {
  int readings = 0;
  pace.before_look([&] { return step_ns * static_cast<std::uint64_t>(readings++); });
  return readings;
}

constexpr std::uint64_t kMessage = 64;

/// A wait in which several messages have come, where nothing else is said.
constexpr LookPace::Wait after_looks(std::uint64_t looks) { return {looks, 3 * kMessage, kMessage, 0}; }
constexpr LookPace::Wait kShortWait = after_looks(LookPace::kShortLooks);
constexpr LookPace::Wait kLongWait = after_looks(LookPace::kShortLooks + 1);

LookPace after(std::uint32_t waits, LookPace::Wait wait = kShortWait) {
  LookPace pace;
  for (std::uint32_t done = 0; done < waits; ++done) pace.note_wait(wait);
  return pace;
}

TEST(LookPace, StartsByLookingAtOnce) { EXPECT_EQ(readings_before_look(LookPace(), 1), 0); }

TEST(LookPace, LooksAtOnceUntilSeveralWaitsInARowWereShort) {
  EXPECT_EQ(readings_before_look(after(LookPace::kShortWaits - 1), 1), 0);
  EXPECT_GT(readings_before_look(after(LookPace::kShortWaits), 1), 0);
}

TEST(LookPace, WaitsForItsTimeAndNoLonger) {
  constexpr std::uint64_t kStepNs = LookPace::kGatherNs / 10;
  EXPECT_EQ(readings_before_look(after(1'000), kStepNs), 11);  // the start, and ten steps later
}

TEST(LookPace, EndsWhereTheClockStandsStill) {
  EXPECT_LE(readings_before_look(after(LookPace::kShortWaits), 0), LookPace::kGatherTurnsMax + 1);
}

TEST(LookPace, LooksAtOnceWhereEachLookFindsManyBytes) {
  EXPECT_FALSE(after(1'000, {0, LookPace::kManyBytes, kMessage, 0}).streams());
}

TEST(LookPace, KeepsItsPaceWhereManyBytesHaveGathered) {
  LookPace pace = after(LookPace::kShortWaits);
  pace.note_wait({0, LookPace::kManyBytes, kMessage, 0});
  EXPECT_TRUE(pace.streams());
}

TEST(LookPace, BearsOneLongWaitInALongStreamAndNoSecond) {
  LookPace pace = after(1'000);
  pace.note_wait(kLongWait);
  EXPECT_TRUE(pace.streams());
  pace.note_wait(kLongWait);
  EXPECT_FALSE(pace.streams());
}

TEST(LookPace, LooksAtOnceAgainWhereOnlyOneMessageHasGathered) {
  LookPace pace = after(LookPace::kShortWaits);
  pace.note_wait({0, kMessage, kMessage, 0});
  EXPECT_FALSE(pace.streams());
}

TEST(LookPace, LooksAtOnceForAnswersHoweverFastTheyCome) {
  LookPace pace;
  for (std::uint64_t round = 1; round < 100; ++round) {
    pace.note_wait({0, kMessage, kMessage, round * kMessage});
    EXPECT_FALSE(pace.streams());
  }
}

/// A header, a body, and then the answer to it: waits are short and long by turns.
TEST(LookPace, LooksAtOnceForARequestInTwoMessages) {
  LookPace pace;
  for (int request = 0; request < 100; ++request) {
    pace.note_wait(kLongWait);
    EXPECT_FALSE(pace.streams());
    pace.note_wait(kShortWait);
    EXPECT_FALSE(pace.streams());
  }
}

}  // namespace
}  // namespace gpusock::ringbuf
