// Threads meet in all ways, in an order drawn by chance, and some let others run between: each gets its own results,
// and goes on where it was, with its registers. A thread that waits in a meeting may be resumed by one that waits
// elsewhere.
#include "tests/unit/cpu_device/run.hpp"

#include <random>
#include <vector>

namespace cpu_device::test::meetings {
namespace {

namespace cg = cooperative_groups;

constexpr int kSteps = 400;
constexpr unsigned kThreads = 70;  // two warps, and a part of a third

enum Step { kBarrier, kShuffle, kBallot, kSum, kCallOfBlock, kCallOfWarp, kCallOfTile, kRelax, kWays };

/// A number that a thread has in one step.
unsigned number(unsigned thread, int step) { return (thread + 1) * 2654435761u ^ static_cast<unsigned>(step) * 40503u; }

unsigned lanes_where(unsigned first, unsigned lanes, int step) {
  unsigned holding = 0;
  for (unsigned lane = 0; lane < lanes; ++lane) holding |= (number(first + lane, step) >> 7 & 1) << lane;
  return holding;
}

/// Makes one step. True if the thread got what it must get.
bool make(Step what, int step) {
  const unsigned me = threadIdx.x, first = me / 32 * 32, lanes = kThreads - first < 32 ? kThreads - first : 32;
  const unsigned mask = lanes == 32 ? ~0u : (1u << lanes) - 1, mine = number(me, step);
  const auto block = cg::this_thread_block();
  if (what == kBarrier) return __syncthreads_count(me < static_cast<unsigned>(step % 71)) == step % 71;
  if (what == kShuffle) {
    const unsigned from = static_cast<unsigned>(step) % lanes;
    return __shfl_sync(mask, mine, static_cast<int>(from)) == number(first + from, step);
  }
  if (what == kBallot) return __ballot_sync(mask, mine >> 7 & 1) == lanes_where(first, lanes, step);
  if (what == kSum) return __reduce_add_sync(mask, me) == lanes * first + lanes * (lanes - 1) / 2;
  if (what == kCallOfBlock) return call_for_group(block, "one", [&] { return mine; }) == number(0, step);
  if (what == kCallOfWarp)
    return call_for_group(cg::tiled_partition<32>(block), "two", [&] { return mine; }) == number(first, step);
  if (what == kCallOfTile)
    return call_for_group(cg::tiled_partition<4>(block), "three", [&] { return mine; }) == number(me / 4 * 4, step);
  if (mine % 3 == 0) relax(0);
  return true;
}

__global__ void meet_in_all_ways(const Step* steps, unsigned* wrong) {
  unsigned whole = threadIdx.x, bad = 0;
  double real = threadIdx.x;
  for (int step = 0; step < kSteps; ++step) {
    whole = whole * 5 + 1;
    real = real * 0.5 + 1;
    bad += !make(steps[step], step);
  }
  unsigned whole_alone = threadIdx.x;
  double real_alone = threadIdx.x;
  for (int step = 0; step < kSteps; ++step) {
    whole_alone = whole_alone * 5 + 1;
    real_alone = real_alone * 0.5 + 1;
  }
  wrong[threadIdx.x] = bad + (whole != whole_alone) + (real != real_alone);
}

TEST(Meetings, GiveEachThreadItsResultsInAnyOrder) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 chance(seed);
    std::vector<Step> steps(kSteps);
    for (Step& step : steps) step = static_cast<Step>(chance() % kWays);
    std::vector<unsigned> wrong(kThreads, ~0u);
    run({1, kThreads}, meet_in_all_ways, steps.data(), wrong.data());
    EXPECT_EQ(wrong, std::vector<unsigned>(kThreads)) << "seed " << seed;
  }
}

TEST(Meetings, AreRefusedOutsideOfKernels) {
  EXPECT_THROW(__syncthreads(), std::logic_error);
  EXPECT_THROW(__syncwarp(), std::logic_error);
}

}  // namespace
}  // namespace cpu_device::test::meetings
