// A call of a group costs one meeting: its leader makes it when all threads have arrived, and all get its result.
#include "cpu_device/detail/group_call.hpp"
#include "cpu_device/device_shape.hpp"

#include "tests/unit/cpu_device/run.hpp"

#include <array>
#include <vector>

namespace cpu_device::test {
namespace {

namespace cg = cooperative_groups;

constexpr int kCalls = 20;

struct Result {
  std::array<std::uint64_t, 4> words;
};

/// What the threads have noted, each for itself or the one that made the calls for all.
struct Notes {
  int made = 0;
  unsigned maker = ~0u;
  unsigned arrived = 0;
  unsigned arrived_when_made = 0;
  std::uint64_t switches = 0;
};

/// A call as the library's: `value` is returned to all threads.
template <class Group, class Value>
Value call(const Group& group, Notes& notes, Value value) {
  return call_for_group(group, __func__, [&] {
    ++notes.made;
    notes.maker = threadIdx.x;
    notes.arrived_when_made = notes.arrived;
    return value;
  });
}

/// Each thread passes another value: the leader's is the one that all get.
template <class Group>
void call_often(const Group& group, Notes& notes, unsigned* wrong) {
  group.sync();
  const std::uint64_t before = thread_switches();
  for (int i = 0; i < kCalls; ++i) {
    ++notes.arrived;
    const auto number = static_cast<std::uint64_t>(i) * 1000;
    const Result got = call(group, notes, Result{{number + group.thread_rank(), number, 7, number + 3}});
    if (got.words != std::array<std::uint64_t, 4>{number, number, 7, number + 3}) ++*wrong;
    if (call(group, notes, static_cast<int>(group.thread_rank()) - i) != -i) ++*wrong;
  }
  if (group.thread_rank() == 0) notes.switches = thread_switches() - before;
  group.sync();
}

__global__ void call_by_block(Notes* notes, unsigned* wrong) {
  call_often(cg::this_thread_block(), *notes, &wrong[threadIdx.x]);
}

TEST(GroupCalls, TheLeaderOfABlockMakesThemWhenAllHaveArrived) {
  for (const unsigned threads : {1u, 2u, 33u, 64u}) {
    Notes notes;
    std::vector<unsigned> wrong(threads);
    run({1, threads}, call_by_block, &notes, wrong.data());
    EXPECT_EQ(notes.made, 2 * kCalls);
    EXPECT_EQ(notes.maker, 0u);
    EXPECT_EQ(notes.arrived_when_made, kCalls * threads);
    EXPECT_EQ(wrong, std::vector<unsigned>(threads));
    EXPECT_LE(notes.switches, (2 * kCalls + 1) * threads) << "each thread waits once in a call";
  }
}

template <unsigned kSize>
__global__ void call_by_tiles(Notes* notes, unsigned* wrong) {
  const auto tile = cg::tiled_partition<kSize>(cg::this_thread_block());
  call_often(tile, notes[threadIdx.x / kSize], &wrong[threadIdx.x]);
}

template <unsigned kSize>
void check_calls_of_tiles() {
  constexpr unsigned kThreads = 64;
  std::vector<Notes> notes(kThreads / kSize);
  std::vector<unsigned> wrong(kThreads);
  run({1, kThreads}, call_by_tiles<kSize>, notes.data(), wrong.data());
  EXPECT_EQ(wrong, std::vector<unsigned>(kThreads));
  for (unsigned tile = 0; tile < notes.size(); ++tile) {
    EXPECT_EQ(notes[tile].made, 2 * kCalls);
    EXPECT_EQ(notes[tile].maker, tile * kSize);
    EXPECT_EQ(notes[tile].arrived_when_made, kCalls * kSize);
    EXPECT_LE(notes[tile].switches, (2 * kCalls + 2) * kThreads) << "of all tiles together";
  }
}

TEST(GroupCalls, TheLeadersOfTilesMakeThem) {
  check_calls_of_tiles<1>();
  check_calls_of_tiles<4>();
  check_calls_of_tiles<32>();
}

__global__ void call_by_odd_lanes(Notes* notes, unsigned* wrong) {
  if (threadIdx.x % 2 == 0) return;
  call_often(cg::coalesced_threads(), *notes, &wrong[threadIdx.x]);
}

TEST(GroupCalls, TheLowestLaneOfThoseThatCameTogetherMakesThem) {
  Notes notes;
  std::vector<unsigned> wrong(32);
  run({1, 32}, call_by_odd_lanes, &notes, wrong.data());
  EXPECT_EQ(notes.maker, 1u);
  EXPECT_EQ(notes.arrived_when_made, kCalls * 16u);
  EXPECT_EQ(wrong, std::vector<unsigned>(32));
}

/// The leader waits in its call for a thread that the block starts after it: in the group's call none but it waits.
__global__ void wait_in_the_call(int* flag, int* seen) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  if (threadIdx.x >= 32) {
    for (int i = 0; i < 10; ++i) warp.sync();
    if (threadIdx.x == 32) atomicExch(flag, 5);
    return;
  }
  seen[threadIdx.x] = call_for_group(warp, "wait", [&] {
    while (atomicAdd(flag, 0) == 0) relax(0);
    return *flag;
  });
}

TEST(GroupCalls, OtherWarpsRunWhileTheLeaderWaitsInOne) {
  int flag = 0;
  std::vector<int> seen(32);
  run({1, 64}, wait_in_the_call, &flag, seen.data());
  EXPECT_EQ(seen, std::vector<int>(32, 5));
}

/// A variable of each thread that the call writes, if it succeeds.
__global__ void write_variables(int result, int* results, int* variables) {
  int variable = static_cast<int>(threadIdx.x);
  results[threadIdx.x] = call_for_group(
      cg::this_thread_block(), "write",
      [&] {
        if (result >= 0) variable = 100;
        return result;
      },
      variable);
  variables[threadIdx.x] = variable;
}

TEST(GroupCalls, WriteEachThreadsVariableUnlessTheyFail) {
  for (const int result : {0, -1}) {
    std::vector<int> results(5), variables(5);
    run({1, 5}, write_variables, result, results.data(), variables.data());
    EXPECT_EQ(results, std::vector<int>(5, result));
    EXPECT_EQ(variables, result == 0 ? std::vector<int>(5, 100) : (std::vector<int>{0, 1, 2, 3, 4}));
  }
}

__global__ void fail_in_the_call() {
  call_for_group(cg::this_thread_block(), "fail", []() -> int { throw std::runtime_error("on purpose"); });
}

TEST(GroupCalls, WhatGoesWrongInOneIsTheLeadersFault) {
  const KernelFault fault = fault_of({1, 64}, fail_in_the_call);
  EXPECT_EQ(fault.thread().x, 0u);
  EXPECT_NE(std::string(fault.what()).find("on purpose"), std::string::npos) << fault.what();
}

/// Lanes of one warp are in a call of the block; the others are in no call, and wait for these.
__global__ void wait_for_lanes_in_a_call() {
  if (threadIdx.x < 7) {
    call_for_group(cg::this_thread_block(), "stuck", [] { return 0; });
  } else {
    __syncwarp();
  }
}

TEST(GroupCalls, ADeadlockSaysWhoIsInOne) {
  const KernelFault fault = fault_of({1, 9}, wait_for_lanes_in_a_call);
  EXPECT_NE(std::string(fault.what()).find("7 in a call of the block: (0,0,0), (1,0,0)"), std::string::npos)
      << fault.what();
  EXPECT_NE(std::string(fault.what()).find("2 at a warp operation: (7,0,0), (8,0,0)"), std::string::npos)
      << fault.what();
}

__global__ void ask_who_calls(bool* leaders) { *leaders = leaders_call(); }

TEST(GroupCalls, TheShapeSaysWhetherLeadersMakeThem) {
  const DeviceShape before = device_shape();
  for (const bool leaders : {false, true}) {
    DeviceShape shape = before;
    shape.leaders_make_calls = leaders;
    set_device_shape(shape);
    bool seen = !leaders;
    run({1, 1}, ask_who_calls, &seen);
    EXPECT_EQ(seen, leaders);
  }
  set_device_shape(before);
  EXPECT_FALSE(leaders_call()) << "outside of kernels";
}

}  // namespace
}  // namespace cpu_device::test
