#include "plan/layer_schemes.hpp"

#include "plan/layer_exchange.hpp"
#include "param_sync/schedule/schemes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace param_sync {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Config with_scheme(const std::string& scheme, std::uint32_t batch) {
  Config config;
  config.scheme = scheme;
  config.batch = batch;
  return config;
}

std::vector<std::string> chosen(const Config& config) {
  const Layout layout = make_layout(std::vector<std::uint32_t>{784, 128, 64, 10}, config.nodes);
  std::vector<std::string> schemes;
  for (const LayerScheme& layer : choose_schemes(config, layout)) schemes.push_back(layer.scheme);
  return schemes;
}

TEST(LayerSchemes, OneSchemeIsForAllLayersAndAListForEach) {
  EXPECT_EQ(chosen(with_scheme("ring", 64)), (std::vector<std::string>{"ring", "ring", "ring"}));
  EXPECT_EQ(chosen(with_scheme("ps,ring,sfb", 64)), (std::vector<std::string>{"ps", "ring", "sfb"}));
}

// Poseidon's rule: the larger the batch, the more factors there are; the gradient stays as large as it is.
TEST(LayerSchemes, HybridTakesFactorsWhileTheBatchIsSmall) {
  EXPECT_EQ(chosen(with_scheme("hybrid", 64)), (std::vector<std::string>{"ps:even", "ps:even", "ps:even"}));
  EXPECT_EQ(chosen(with_scheme("hybrid", 16)), (std::vector<std::string>{"sfb", "sfb", "ps:even"}));
  EXPECT_EQ(chosen(with_scheme("hybrid", 2)), (std::vector<std::string>{"sfb", "sfb", "sfb"}));
}

TEST(LayerSchemes, HybridCountsTheBytesOfTheBusiestNode) {
  for (const std::uint32_t batch : {1u, 8u, 55u, 56u, 64u}) {
    const Layout layout = make_layout(std::vector<std::uint32_t>{784, 128}, 4);
    const ExchangeShape shape = ExchangeShape::of(layout, 0, batch, 0);
    const std::uint64_t factors = busiest_bytes(make_layer_exchanges("sfb", shape));
    EXPECT_EQ(factors, 3 * (4ull * batch * (784 + 128) + 32));
    const std::string scheme = choose_schemes(with_scheme("hybrid", batch), layout).front().scheme;
    EXPECT_EQ(busiest_bytes(make_layer_exchanges(scheme, shape)),
              std::min(factors, busiest_bytes(make_layer_exchanges("ps:even", shape))));
  }
}

// Where latency is all, little depth wins; where bytes are, few bytes; where making gradients of factors costs nothing,
// factors.
TEST(LayerSchemes, AutoTakesWhatIsCheapestAtThePrices) {
  Config config = with_scheme("auto", 1);
  config.nodes = 8;
  config.prices = {1000, 0, 1000, 1000, 1e9};
  const Layout layout = make_layout(std::vector<std::uint32_t>{784, 128}, config.nodes);
  const LayerScheme by_latency = choose_schemes(config, layout).front();
  EXPECT_EQ(by_latency.scheme, "sfb") << by_latency.why;  // depth 1
  config.prices.multiply_adds = 1e-3;
  const LayerScheme by_rebuild = choose_schemes(config, layout).front();
  EXPECT_NE(by_rebuild.scheme, "sfb");
  EXPECT_THAT(by_rebuild.why, HasSubstr("the next is"));
  config.prices = {1e-3, 1000, 1000, 1000, 1e-3};
  const LayerScheme by_messages = choose_schemes(config, layout).front();
  EXPECT_EQ(by_messages.scheme, "butterfly") << by_messages.why;  // the fewest messages of a rank
}

TEST(LayerSchemes, FactorsOfALayerWithoutThemAreRefused) {
  ExchangeShape shape = ExchangeShape::of(make_layout(std::vector<std::uint32_t>{8, 4}, 2), 0, 16, 0);
  shape.has_factors = false;
  for (const std::string& scheme : training_schemes()) {
    const auto make = [&] { make_layer_exchanges(scheme, shape); };
    if (is_of_factors(scheme)) {
      EXPECT_THROW(make(), schedule::Error) << scheme;
    } else if (!schedule::uses(scheme, schedule::Setting::summation_nodes)) {
      EXPECT_NO_THROW(make()) << scheme;
    }
  }
}

TEST(LayerSchemes, OneNodeIsSaidToSendNothing) {
  for (const char* choice : {"hybrid", "auto"}) {
    Config config = with_scheme(choice, 2);
    config.nodes = 1;
    for (const LayerScheme& layer : choose_schemes(config, make_layout(std::vector<std::uint32_t>{784, 128, 10}, 1)))
      EXPECT_EQ(layer.why, std::string(choice) + ": one node sends nothing");
  }
}

TEST(LayerSchemes, NodesCompareTheSchemesOfAllLayers) {
  const Layout layout = make_layout(std::vector<std::uint32_t>{784, 128, 64, 10}, 4);
  const auto code = [&](const char* scheme) { return code_of(choose_schemes(with_scheme(scheme, 64), layout)); };
  EXPECT_EQ(code("hybrid"), code("ps:even"));
  EXPECT_EQ(describe_difference(code("ps,ring,sfb"), code("ps,ring,mesh"), layout),
            "layer 64 x 10 has sfb there, mesh here");
}

TEST(LayerSchemes, NodesAlsoCompareThemWhereThereAreMany) {
  const Layout layout = make_layout(std::vector<std::uint32_t>(12, 8), 4);
  const auto code = [&](const std::string& last) {
    std::string scheme = last;
    for (int layer = 0; layer < 10; ++layer) scheme = "ps," + scheme;
    return code_of(choose_schemes(with_scheme(scheme.c_str(), 64), layout));
  };
  EXPECT_EQ(code("ring"), code("ring"));
  EXPECT_NE(code("ring"), code("mesh"));
  EXPECT_EQ(describe_difference(code("ring"), code("mesh"), layout), "they differ in some layer");
}

TEST(LayerSchemes, TextsThatAreNoSchemesAreRefused) {
  const std::vector<AnyLayer> three = perceptron(std::vector<std::uint32_t>{8, 8, 8, 8});
  EXPECT_EQ(scheme_problem("auto,hybrid,chain", three), "");
  EXPECT_EQ(scheme_problem("sfb", three), "");
  EXPECT_THAT(scheme_problem("ps,rings,ps", three), HasSubstr("'rings' is no scheme; there are: ps, mesh"));
  EXPECT_THAT(scheme_problem("ps,ps,ps,ps", three), HasSubstr("has 4 schemes, but the model has 3 layers"));
  EXPECT_THAT(scheme_problem("direct", three), HasSubstr("'direct' is no scheme"));  // there was one once
  EXPECT_THAT(scheme_problem("blink", three), HasSubstr("'blink' is no scheme"));
}

TEST(LayerSchemes, FactorsAreOnlyForLayersThatHaveThem) {
  const std::vector<AnyLayer> layers = lenet(28, 28, 10);
  for (const char* scheme : {"ps", "hybrid", "auto", "ring,chain,sfb,adam-fc,sfb"}) {
    EXPECT_EQ(scheme_problem(scheme, layers), "") << scheme;
  }
  EXPECT_THAT(scheme_problem("sfb", layers),
              StartsWith("'sfb' sends factors, and layer 1 of the model (conv 5 x 5 x 6)"));
  EXPECT_THAT(scheme_problem("ps,adam-fc,sfb,sfb,sfb", layers), StartsWith("'adam-fc' sends factors, and layer 2 of"));
  const Layout layout = make_layout(layers, 3);
  for (const char* choice : {"hybrid", "auto"}) {
    const auto schemes = choose_schemes(with_scheme(choice, 1), layout);
    EXPECT_FALSE(is_of_factors(schemes[0].scheme) || is_of_factors(schemes[1].scheme)) << choice;
    EXPECT_TRUE(is_of_factors(schemes[2].scheme)) << choice;
  }
}

}  // namespace
}  // namespace param_sync
