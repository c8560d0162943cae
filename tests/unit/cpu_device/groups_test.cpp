#include "tests/unit/cpu_device/run.hpp"

#include <vector>

namespace cpu_device::test {
namespace {

namespace cg = cooperative_groups;

struct Facts {
  unsigned rank, size, meta_rank, meta_size;
  unsigned sum, from_above, from_below, crossed, from_first;
  unsigned ballot;
  int any, all;
};

/// What any tile, of one or the other kind, can say and do.
template <class Tile>
Facts ask(const Tile& tile) {
  Facts facts{};
  facts.rank = tile.thread_rank();
  facts.size = tile.num_threads();
  facts.meta_rank = tile.meta_group_rank();
  facts.meta_size = tile.meta_group_size();
  facts.sum = cg::reduce(tile, threadIdx.x, cg::plus<unsigned>());
  facts.from_above = tile.shfl_down(threadIdx.x, 1);
  facts.from_below = tile.shfl_up(threadIdx.x, 1);
  facts.from_first = tile.shfl(threadIdx.x, 0);
  facts.ballot = tile.ballot(tile.thread_rank() % 2 == 0);
  facts.any = tile.any(tile.thread_rank() == 0);
  facts.all = tile.all(tile.thread_rank() == 0);
  tile.sync();
  return facts;
}

template <unsigned kSize>
__global__ void ask_tiles(Facts* out) {
  const auto tile = cg::tiled_partition<kSize>(cg::this_thread_block());
  out[threadIdx.x] = ask(tile);
  out[threadIdx.x].crossed = tile.shfl_xor(threadIdx.x, kSize / 2);
}

template <unsigned kSize>
void check_tiles() {
  constexpr unsigned kThreads = 96;
  std::vector<Facts> out(kThreads);
  run({1, kThreads}, ask_tiles<kSize>, out.data());
  for (unsigned i = 0; i < kThreads; ++i) {
    const unsigned rank = i % kSize, first = i - rank;
    const Facts& facts = out[i];
    EXPECT_EQ(facts.rank, rank);
    EXPECT_EQ(facts.size, kSize);
    EXPECT_EQ(facts.meta_rank, i / kSize);
    EXPECT_EQ(facts.meta_size, kThreads / kSize);
    EXPECT_EQ(facts.sum, kSize * first + kSize * (kSize - 1) / 2);
    EXPECT_EQ(facts.from_above, rank + 1 < kSize ? i + 1 : i);
    EXPECT_EQ(facts.from_below, rank > 0 ? i - 1 : i);
    EXPECT_EQ(facts.from_first, first);
    EXPECT_EQ(facts.crossed, first + (rank ^ kSize / 2));
    EXPECT_EQ(facts.ballot, 0x55555555u & (kSize == 32 ? ~0u : (1u << kSize) - 1));
    EXPECT_EQ(facts.any, 1);
    EXPECT_EQ(facts.all, kSize == 1);
  }
}

TEST(Groups, TilesOfEverySize) {
  check_tiles<1>();
  check_tiles<2>();
  check_tiles<4>();
  check_tiles<8>();
  check_tiles<16>();
  check_tiles<32>();
}

__global__ void partition_a_tile(unsigned* out) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const auto quarter = cg::tiled_partition<8>(warp);
  unsigned* mine = out + threadIdx.x * 3;
  mine[0] = quarter.meta_group_rank();
  mine[1] = quarter.meta_group_size();
  mine[2] = quarter.shfl(threadIdx.x, 7);
}

TEST(Groups, TilesOfTiles) {
  std::vector<unsigned> out(64 * 3);
  run({1, 64}, partition_a_tile, out.data());
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i * 3], i % 32 / 8);
    EXPECT_EQ(out[i * 3 + 1], 4u);
    EXPECT_EQ(out[i * 3 + 2], i / 8 * 8 + 7);
  }
}

struct Large {
  long long words[4];
};

__global__ void shuffle_large(Large* out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const long long i = threadIdx.x;
  out[threadIdx.x] = tile.shfl(Large{{i, i * 2, i * 3, -i}}, 5);
}

TEST(Groups, TilesShuffleValuesOfUpTo32Bytes) {
  std::vector<Large> out(32);
  run({1, 32}, shuffle_large, out.data());
  for (int i = 0; i < 32; ++i) {
    const long long from = i / 16 * 16 + 5;
    EXPECT_EQ(out[i].words[0], from);
    EXPECT_EQ(out[i].words[1], from * 2);
    EXPECT_EQ(out[i].words[2], from * 3);
    EXPECT_EQ(out[i].words[3], -from);
  }
}

__global__ void ask_block(unsigned* out) {
  const auto block = cg::this_thread_block();
  __shared__ unsigned total;
  if (block.thread_rank() == 0) total = 0;
  block.sync();
  atomicAdd(&total, block.thread_rank());
  cg::sync(block);
  unsigned* mine = out + block.thread_rank() * 3;
  mine[0] = total;
  mine[1] = block.size();
  mine[2] = block.thread_index().y * 100 + block.group_index().x;
}

TEST(Groups, TheBlock) {
  std::vector<unsigned> out(60 * 3);
  run({1, {20, 3}}, ask_block, out.data());
  for (unsigned i = 0; i < 60; ++i) {
    EXPECT_EQ(out[i * 3], 60u * 59 / 2);
    EXPECT_EQ(out[i * 3 + 1], 60u);
    EXPECT_EQ(out[i * 3 + 2], i / 20 * 100);
  }
}

/// The textbook use: one atomic for all lanes that came together.
__global__ void aggregated_count(int* counter, int* slots) {
  if (threadIdx.x % 3 != 0) return;
  const auto active = cg::coalesced_threads();
  int base = 0;
  if (active.thread_rank() == 0) base = atomicAdd(counter, static_cast<int>(active.num_threads()));
  const int slot = active.shfl(base, 0) + static_cast<int>(active.thread_rank());
  atomicAdd(&slots[slot], 1);
  if (active.num_threads() != 11) atomicAdd(&slots[63], 1);  // the lanes 0, 3, .. 30 of the only warp
}

TEST(Groups, CoalescedThreadsAreThoseThatCameTogether) {
  int counter = 0;
  std::vector<int> slots(64);
  run({1, 32}, aggregated_count, &counter, slots.data());
  EXPECT_EQ(counter, 11);
  for (int i = 0; i < 11; ++i) EXPECT_EQ(slots[i], 1);
  EXPECT_EQ(slots[63], 0);
}

__global__ void ask_coalesced(unsigned* out) {
  if (threadIdx.x % 8 < 5) return;
  const auto group = cg::coalesced_threads();
  unsigned* mine = out + threadIdx.x * 4;
  mine[0] = group.shfl_down(threadIdx.x, 1);
  mine[1] = group.shfl_up(threadIdx.x, 2);
  mine[2] = group.ballot(group.thread_rank() != 1);
  mine[3] = group.shfl(threadIdx.x, group.num_threads() - 1);
}

TEST(Groups, CoalescedThreadsCountRanksNotLanes) {
  std::vector<unsigned> out(32 * 4);
  run({1, 32}, ask_coalesced, out.data());
  const std::vector<unsigned> lanes{5, 6, 7, 13, 14, 15, 21, 22, 23, 29, 30, 31};
  for (unsigned rank = 0; rank < lanes.size(); ++rank) {
    const unsigned* mine = &out[lanes[rank] * 4];
    EXPECT_EQ(mine[0], lanes[rank + 1 < lanes.size() ? rank + 1 : rank]);
    EXPECT_EQ(mine[1], lanes[rank < 2 ? rank : rank - 2]);
    EXPECT_EQ(mine[2], 0xffdu);
    EXPECT_EQ(mine[3], 31u);
  }
}

/// One lane waits for another, which asks who is with it: the answer must not wait for the first.
__global__ void ask_while_another_waits(unsigned* flag, unsigned* mask, bool by_relax) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0u) == 0) {
      if (by_relax) relax(0);
    }
  } else {
    *mask = __activemask();
    atomicExch(flag, 1u);
  }
}

TEST(Groups, WhoIsActiveIsAnsweredWhileOthersSpin) {
  for (const bool by_relax : {false, true}) {
    unsigned flag = 0, mask = 0;
    run({1, 2}, ask_while_another_waits, &flag, &mask, by_relax);
    EXPECT_EQ(mask, 2u);
  }
}

}  // namespace
}  // namespace cpu_device::test
