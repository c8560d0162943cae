// Products that are cut into bands: what is passed on, in which order, and that results have the same bits.
#include "layers/bands.cuh"

#include "gpusock/gpusock.hpp"

#include <gtest/gtest.h>

#include <cuda/atomic>

#include <string>
#include <vector>

namespace bands_test {
namespace {

using namespace param_sync;

/// What blocks count while they go over a product.
struct Counts {
  std::uint64_t written, read;  ///< sums that were passed on, and taken over
  std::uint64_t loaded;         ///< weights of the bands that blocks have begun
  std::uint64_t out_of_order;   ///< steps that a sum got before it had all earlier ones
};

using Counter = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>;

__device__ void add(std::uint64_t& to, std::uint64_t more) {
  Counter(to).fetch_add(more, cuda::memory_order_relaxed);  // the host reads it after the kernel
}

/// `done`: of each sum, how many steps it has. `at_band`: of each block, the band that it is at, from 1; 0: none yet.
__global__ void go_over(Bands of, std::uint32_t rows, std::uint32_t* done, std::uint64_t* at_band, Counts* counts) {
  for_product_tiles(of, rows, [&](const TileBounds& at, const auto& steps) {
    const std::uint64_t band = 1 + steps.begin;
    if (Counter(at_band[blockIdx.x]).exchange(band, cuda::memory_order_relaxed) != band) {
      const std::uint32_t first = at.column / kPanelColumns * kPanelColumns;
      add(counts->loaded, std::uint64_t{steps.count()} * min(kPanelColumns, of.columns - first));
    }
    const std::uint64_t sums = std::uint64_t{at.rows} * at.columns;
    if (!steps.are_first()) add(counts->read, sums);
    if (!steps.are_last) add(counts->written, sums);
    for (std::uint32_t r = 0; r < at.rows; ++r) {
      for (std::uint32_t c = 0; c < at.columns; ++c) {
        std::uint32_t& has = done[std::size_t{at.row + r} * of.columns + at.column + c];
        if (has != steps.begin) add(counts->out_of_order, 1);
        has = steps.end;
      }
    }
  });
}

struct Shape {
  std::uint32_t rows, steps, columns;
  std::uint64_t bytes;
};

class BandsOf : public ::testing::TestWithParam<Shape> {};

/// Each sum gets all steps in order. Each weight comes into the cache once, for all rows: a block goes to the next band
/// when all its threads have done with one. What is passed on is what Bands says.
TEST_P(BandsOf, PassOnWhatTheySayAndLoadEachWeightOnce) {
  const Shape& at = GetParam();
  const Bands of = Bands::of(at.bytes, at.steps, at.columns);
  ASSERT_NE(of.height, 0u);
  EXPECT_LE(std::uint64_t{of.height} * std::min(at.columns, kPanelColumns) * sizeof(float), at.bytes);
  gpusock::Context context;
  gpusock::Stream stream(context);
  gpusock::Mapped<std::uint32_t> done(context, std::size_t{at.rows} * at.columns);
  gpusock::Mapped<std::uint64_t> at_band(context, of.panels());
  gpusock::Mapped<Counts> counts(context, 1);
  gpusock::launch(context, {.grid = of.blocks(at.rows), .block = kBlockTiles, .stream = &stream}, go_over, of, at.rows,
                  done.data(), at_band.data(), counts.data());
  stream.synchronize();
  EXPECT_EQ(counts[0].out_of_order, 0u);
  for (std::size_t i = 0; i < done.size(); ++i) ASSERT_EQ(done[i], at.steps) << "sum " << i;
  EXPECT_EQ(counts[0].written, of.passed(at.rows));
  EXPECT_EQ(counts[0].read, of.passed(at.rows));
  const std::uint64_t bands = (at.steps + of.height - 1) / of.height;
  EXPECT_EQ(of.passed(at.rows), at.rows * at.columns * (bands - 1));
  EXPECT_EQ(counts[0].loaded, std::uint64_t{at.steps} * at.columns);
}

// Steps, columns and rows that fill a band, a panel and a tile, and those that do not; bands of one step.
INSTANTIATE_TEST_SUITE_P(Shapes, BandsOf,
                         ::testing::Values(Shape{64, 100, 256, 10'240}, Shape{64, 100, 256, kBandBytesMin},
                                           Shape{9, 101, 259, 4096}, Shape{1, 7, 1030, kBandBytesMin},
                                           Shape{17, 300, 3, 1200}, Shape{8, 2, 600, 4000}));

TEST(Bands, CutNoLayerThatIsNoLargerThanOne) {
  EXPECT_EQ(Bands::of(4 * 300 * 20, 300, 20).height, 0u);
  EXPECT_EQ(Bands::of(4 * 300 * 20 - 1, 300, 20).height, 299u);
  EXPECT_EQ(Bands::of(0, 65536, 4096).height, 0u);
  EXPECT_EQ(Bands::of(0, 65536, 4096).blocks(64), compute_blocks(64, 4096));
  EXPECT_EQ(Bands::of(0, 65536, 4096).passed(64), 0u);
}

}  // namespace
}  // namespace bands_test
