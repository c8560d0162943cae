#include "tests/unit/cpu_device/run.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <random>
#include <vector>

namespace cpu_device::test {
namespace {

constexpr unsigned kFull = 0xffffffffu;

/// The PTX ISA's pseudo-code of shfl.sync (9.7.9.6), with the clamp and segment mask that the CUDA headers pass.
enum class Mode { index, up, down, exchange };
int source_by_ptx(Mode mode, int lane, int operand, int width) {
  const int clamp = mode == Mode::up ? 0 : 31, segment = 32 - width;
  const int max_lane = (lane & segment) | (clamp & ~segment), min_lane = lane & segment;
  operand &= 31;
  int source = 0;
  bool inside = false;
  switch (mode) {
    case Mode::up:
      source = lane - operand;
      inside = source >= max_lane;
      break;
    case Mode::down:
      source = lane + operand;
      inside = source <= max_lane;
      break;
    case Mode::exchange:
      source = lane ^ operand;
      inside = source <= max_lane;
      break;
    case Mode::index:
      source = min_lane | (operand & ~segment);
      inside = source <= max_lane;
      break;
  }
  return inside ? source : lane;
}

constexpr int kOperands[] = {0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31};
constexpr int kThreads = 64;

/// A shuffle after the other, one for each operand.
template <class T>
__global__ void shuffle_all(T* out, int mode, int width) {
  const T mine = static_cast<T>(1000 + threadIdx.x * 3) / 2;
  for (const int operand : kOperands) {
    T& result = out[threadIdx.x];
    switch (static_cast<Mode>(mode)) {
      case Mode::index:
        result = __shfl_sync(kFull, mine, operand, width);
        break;
      case Mode::up:
        result = __shfl_up_sync(kFull, mine, operand, width);
        break;
      case Mode::down:
        result = __shfl_down_sync(kFull, mine, operand, width);
        break;
      case Mode::exchange:
        result = __shfl_xor_sync(kFull, mine, operand, width);
        break;
    }
    out += kThreads;
  }
}

template <class T>
void check_shuffles(std::initializer_list<int> widths) {
  for (const Mode mode : {Mode::index, Mode::up, Mode::down, Mode::exchange}) {
    for (const int width : widths) {
      std::vector<T> out(std::size(kOperands) * kThreads);
      run({1, kThreads}, shuffle_all<T>, out.data(), static_cast<int>(mode), width);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const int operand = kOperands[i / kThreads], thread = static_cast<int>(i % kThreads);
        const int source = thread / 32 * 32 + source_by_ptx(mode, thread % 32, operand, width);
        ASSERT_EQ(out[i], static_cast<T>(1000 + source * 3) / 2)
            << "mode " << static_cast<int>(mode) << " operand " << operand << " width " << width << " thread "
            << thread;
      }
    }
  }
}

TEST(WarpShuffle, EveryKindDistanceAndWidthAsInThePtxManual) { check_shuffles<int>({1, 2, 4, 8, 16, 32}); }

TEST(WarpShuffle, CarriesEveryType) {
  check_shuffles<unsigned>({8});
  check_shuffles<long long>({8});
  check_shuffles<float>({8});
  check_shuffles<double>({8});
}

/// The two halves of a warp shuffle among themselves at the same time, different numbers of times.
__global__ void shuffle_in_halves(int* out) {
  const unsigned lane = threadIdx.x % 32;
  int value = static_cast<int>(threadIdx.x);
  if (lane < 16) {
    for (int i = 0; i < 5; ++i) value = __shfl_sync(0x0000ffffu, value, (lane + 1) % 16);
  } else {
    for (int i = 0; i < 9; ++i) value = __shfl_sync(0xffff0000u, value, 16 + (lane + 1) % 16);
  }
  __syncwarp();
  out[threadIdx.x] = value;
}

TEST(WarpShuffle, WorksUnderDivergence) {
  std::vector<int> out(64);
  run({1, 64}, shuffle_in_halves, out.data());
  for (int i = 0; i < 64; ++i) {
    const int turns = i % 32 < 16 ? 5 : 9;
    EXPECT_EQ(out[i], i / 16 * 16 + (i % 16 + turns) % 16);
  }
}

/// A lane that runs ahead brings new values to later operations; nobody sees them early.
__global__ void run_ahead(int* wrong) {
  const unsigned lane = threadIdx.x;
  for (int round = 0; round < 50; ++round) {
    const int got = __shfl_sync(kFull, round * 100 + static_cast<int>(lane), (lane + 7) % 32);
    if (got != round * 100 + static_cast<int>((lane + 7) % 32)) atomicAdd(wrong, 1);
    for (unsigned i = 0; i < lane % 4; ++i) {
      if (__shfl_sync(1u << lane, -1 - round, lane) != -1 - round) atomicAdd(wrong, 1);
    }
  }
}

TEST(WarpShuffle, ValuesBelongToOneOperationOnly) {
  int wrong = 0;
  run({1, 32}, run_ahead, &wrong);
  EXPECT_EQ(wrong, 0);
}

__global__ void vote(unsigned* out, unsigned mask, unsigned holds) {
  const unsigned lane = threadIdx.x % 32;
  if (!(mask >> lane & 1)) return;
  unsigned* mine = out + threadIdx.x * 3;
  mine[0] = __ballot_sync(mask, holds >> lane & 1);
  mine[1] = static_cast<unsigned>(__any_sync(mask, holds >> lane & 1));
  mine[2] = static_cast<unsigned>(__all_sync(mask, holds >> lane & 1));
}

TEST(WarpVote, AgreesWithAHostReferenceForAnyMask) {
  std::mt19937 random(1);
  std::vector<std::array<unsigned, 2>> cases{{kFull, 0},    {kFull, kFull}, {1u, 1u},
                                             {1u << 31, 0}, {0xff, 0xff},   {0xff, 0xff00}};
  for (int i = 0; i < 100; ++i)
    cases.push_back({static_cast<unsigned>(random()) | 1u, static_cast<unsigned>(random())});
  for (const auto& [mask, holds] : cases) {
    std::vector<unsigned> out(96, 77);
    run({1, 32}, vote, out.data(), mask, holds);
    for (unsigned lane = 0; lane < 32; ++lane) {
      const bool in = mask >> lane & 1;
      EXPECT_EQ(out[lane * 3], in ? mask & holds : 77);
      EXPECT_EQ(out[lane * 3 + 1], in ? (mask & holds) != 0 : 77);
      EXPECT_EQ(out[lane * 3 + 2], in ? (mask & holds) == mask : 77);
    }
  }
}

/// The last warp has 8 lanes, and names all 32.
TEST(WarpVote, PartialWarpsVoteWithTheLanesThatExist) {
  std::vector<unsigned> out(40 * 3);
  run({1, 40}, vote, out.data(), kFull, kFull);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(out[i * 3], i < 32 ? kFull : 0xffu);
}

__global__ void vote_without_the_ended(unsigned* out) {
  if (threadIdx.x % 4 == 3) return;
  out[threadIdx.x] = __ballot_sync(kFull, 1);
}

TEST(WarpVote, LanesThatHaveEndedAreNotWaitedFor) {
  std::vector<unsigned> out(32);
  run({1, 32}, vote_without_the_ended, out.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 4 == 3 ? 0u : 0x77777777u);
}

__global__ void write_then_sync(int* wrong) {
  __shared__ int slots[32];
  for (int round = 0; round < 20; ++round) {
    slots[threadIdx.x] = round;
    __syncwarp();
    if (slots[(threadIdx.x + 13) % 32] != round) atomicAdd(wrong, 1);
    __syncwarp();
  }
}

TEST(WarpSync, NobodyPassesBeforeTheLastHasCome) {
  int wrong = 0;
  run({1, 32}, write_then_sync, &wrong);
  EXPECT_EQ(wrong, 0);
}

__global__ void reduce(unsigned* sums, int* minima, unsigned* matches) {
  const unsigned lane = threadIdx.x;
  sums[lane] = __reduce_add_sync(kFull, lane);
  minima[lane] = __reduce_min_sync(kFull, 5 - static_cast<int>(lane));
  matches[lane] = __match_any_sync(kFull, lane % 5);
}

TEST(WarpReduce, SumsMinimaAndMatches) {
  std::vector<unsigned> sums(32), matches(32);
  std::vector<int> minima(32);
  run({1, 32}, reduce, sums.data(), minima.data(), matches.data());
  for (unsigned i = 0; i < 32; ++i) {
    unsigned same = 0;
    for (unsigned j = i % 5; j < 32; j += 5) same |= 1u << j;
    EXPECT_EQ(sums[i], 496u);
    EXPECT_EQ(minima[i], -26);
    EXPECT_EQ(matches[i], same);
  }
}

/// The comments in the assembly keep the compiler from making one call of the two.
__global__ void active(unsigned* out) {
  unsigned lanes = 0;
  if (threadIdx.x % 2 == 0) {
    asm volatile("# before the even lanes' call" : : : "memory");
    lanes = __activemask();
    asm volatile("# after the even lanes' call" : : : "memory");
  } else if (threadIdx.x < 8) {
    asm volatile("# before the odd lanes' call" : : : "memory");
    lanes = __activemask();
    asm volatile("# after the odd lanes' call" : : : "memory");
  }
  out[threadIdx.x] = lanes;
}

TEST(WarpActiveMask, HoldsTheLanesThatCameToTheSameCall) {
  std::vector<unsigned> out(32);
  run({1, 32}, active, out.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 0x55555555u : i < 8 ? 0xaau : 0u) << i;
}

TEST(WarpFaults, ALaneOutsideItsOwnMaskIsReported) {
  const auto fault = fault_of(
      {1, 32}, +[] { __syncwarp(0x0000ffff); });
  EXPECT_EQ(fault.thread().x, 16u);
  EXPECT_NE(std::string(fault.what()).find("lane 16 called a warp operation with mask 0x0000ffff"), std::string::npos)
      << fault.what();
}

TEST(WarpFaults, DifferentOperationsOfOneMaskAreReported) {
  const auto fault = fault_of(
      {1, 2}, +[] {
        if (threadIdx.x == 0) {
          __syncwarp(3);
        } else {
          __ballot_sync(3, 1);
        }
      });
  EXPECT_NE(std::string(fault.what()).find("different warp operations"), std::string::npos) << fault.what();
}

}  // namespace
}  // namespace cpu_device::test
