#include "layout/layout.hpp"

#include "tests/support/error_of.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using ::testing::HasSubstr;

Layout make(std::vector<std::uint32_t> widths, int nodes) { return make_layout(widths, nodes); }

struct Model {
  std::vector<std::uint32_t> widths;
  int nodes;
};

class Layouts : public ::testing::TestWithParam<Model> {};

TEST_P(Layouts, LayersFollowEachOther) {
  const Layout layout = make(GetParam().widths, GetParam().nodes);
  std::uint32_t parameters = 0;
  for (const Layer& layer : layout.layers) {
    EXPECT_EQ(layer.offset, parameters);
    parameters += layer.parameters();
  }
  EXPECT_EQ(layout.parameters(), parameters);
}

void expect_blocks_cover(const Layer& layer) {
  std::uint32_t covered = 0;
  for (std::uint32_t block = 0; block < layer.blocks(); ++block) {
    const Range range = std::visit([&](const auto& kind) { return kind.block_range(block); }, layer.kind);
    EXPECT_EQ(range.begin, covered);
    EXPECT_GT(range.size(), 0u);
    covered = range.end;
  }
  EXPECT_EQ(covered, layer.parameters());
}

TEST_P(Layouts, BlocksCoverEachLayerOnce) {
  const Layout layout = make(GetParam().widths, GetParam().nodes);
  for (const Layer& layer : layout.layers) expect_blocks_cover(layer);
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts,
                         ::testing::Values(Model{{784, 128, 64, 10}, 1}, Model{{784, 128, 64, 10}, 4},
                                           Model{{784, 128, 64, 10}, 7}, Model{{13, 9, 5}, 3}, Model{{8, 8, 8}, 2},
                                           Model{{1, 32, 2}, 64}, Model{{300, 1, 200, 3}, 4}));

TEST(Layout, ConvolutionsHaveBlocksAndNamesForAllTheirParameters) {
  const Layout layout = make_layout(lenet(28, 28, 10), 64);
  EXPECT_EQ(layout.parameters(), 156u + 2416 + 401 * 120 + 121 * 84 + 85 * 10);
  for (const Layer& layer : layout.layers) {
    expect_blocks_cover(layer);
    std::uint64_t floats = 0;
    for (const TensorShape& tensor : layer.tensors()) floats += tensor.floats();
    EXPECT_EQ(floats, layer.parameters());
  }
  EXPECT_NE(layout.fingerprint(), make_layout(lenet(28, 29, 10), 64).fingerprint());
  const auto large = [] { make_layout({Conv2d::of({256, 256, 1}, 1, 16, 4, Activation::none)}, 1); };
  EXPECT_THAT(error_of(large), HasSubstr("2^18 sums"));
  EXPECT_THAT(error_of([] { make_layout(lenet(11, 12, 10), 1); }), HasSubstr("widths"));
}

TEST(Layout, RefusesALayerWithFewerParametersThanNodes) {
  EXPECT_NO_THROW(make({3, 2}, 8));
  EXPECT_THAT(error_of([] { make({3, 2}, 9); }), HasSubstr("layer 3 x 2 has fewer parameters than there are nodes"));
}

TEST(Layout, RefusesWhatIsTooLarge) {
  EXPECT_THAT(error_of([] { make({65536, 65536}, 1); }), HasSubstr("2^28"));
  EXPECT_THAT(error_of([] { make({65537, 1}, 1); }), HasSubstr("widths"));
  EXPECT_THAT(error_of([] { make({8, 8}, 65); }), HasSubstr("1 to 64"));
}

TEST(Layout, FingerprintsTellModelsApart) {
  const auto fingerprint = make({784, 128, 64, 10}, 4).fingerprint();
  EXPECT_EQ(fingerprint, make({784, 128, 64, 10}, 4).fingerprint());
  EXPECT_NE(fingerprint, make({784, 128, 64, 10}, 3).fingerprint());
  EXPECT_NE(fingerprint, make({784, 64, 128, 10}, 4).fingerprint());
  const auto activated = [](Activation first) {
    return make_layout({Dense::of(8, 4, first), Dense::of(4, 2, Activation::none)}, 2).fingerprint();
  };
  EXPECT_EQ(activated(Activation::relu), make({8, 4, 2}, 2).fingerprint());
  EXPECT_NE(activated(Activation::relu), activated(Activation::none));
}

TEST(Layout, RefusesLayersThatAreNoModel) {
  const auto refused = [](const std::vector<AnyLayer>& layers) { return error_of([&] { make_layout(layers, 1); }); };
  EXPECT_THAT(refused({}), HasSubstr("0 layers"));
  EXPECT_THAT(refused({Dense::of(65536, 65536, Activation::none)}), HasSubstr("2^28"));
  EXPECT_THAT(refused({Dense::of(4, 3, Activation::relu), Dense::of(2, 1, Activation::none)}),
              HasSubstr("layer 2 x 1 follows layer 4 x 3, which has other outputs"));
  EXPECT_THAT(refused({Dense::of(4, 3, Activation::relu)}), HasSubstr("the last layer has an activation"));
  EXPECT_THAT(error_of([] { make(std::vector<std::uint32_t>(66, 8), 1); }), HasSubstr("65 layers; it takes 1 to 64"));
}

TEST(Layout, HasAsManyLayersAsAreWanted) {
  const Layout layout = make(std::vector<std::uint32_t>(31, 8), 2);
  EXPECT_EQ(layout.size(), 30);
  EXPECT_EQ(layout.parameters(), 30u * 9 * 8);
}

TEST(Layers, NameAllTheirParameters) {
  const Layer layer{Dense::of(5, 3, Activation::relu)};
  std::uint64_t floats = 0;
  for (const TensorShape& tensor : layer.tensors()) floats += tensor.floats();
  EXPECT_EQ(floats, layer.parameters());
}

TEST(InitialWeights, AreTheSameForTheSameSeedAndHaveZeroBiases) {
  const Layout layout = make({20, 8, 3}, 2);
  const auto weights = initial_weights(layout, 5);
  EXPECT_EQ(weights, initial_weights(layout, 5));
  EXPECT_NE(weights, initial_weights(layout, 6));
  const float limit = 0.5477226f;  // sqrt(6 / 20)
  for (std::uint32_t i = 0; i < 20 * 8; ++i) EXPECT_LE(std::abs(weights[i]), limit);
  for (std::uint32_t i = 20 * 8; i < 21 * 8; ++i) EXPECT_EQ(weights[i], 0.0f);
}

}  // namespace
}  // namespace param_sync
