// Figures: which data they are made of.
#include "figures/figures.hpp"
#include "models/model.hpp"
#include "param_sync/schedule/schedule.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

namespace {

using namespace param_sync;
using gpusock::test::error_of;

TEST(Figures, LossOverTimeNeedsTimes) {
  const std::string head = "# step\n# images\n";
  const std::string with = figures::loss(head + "1\t2\tnan\t1\t0\t0.5\t0\t1\n2\t2\tnan\t1\t0\t1\t3\t2\n").script;
  EXPECT_NE(with.find("seconds"), std::string::npos);
  EXPECT_NE(with.find("plot for [rank = 0 : 3]"), std::string::npos);
  const std::string without = figures::loss(head + "1\t2\tnan\t1\t0\tnan\tnan\tnan\n").script;
  EXPECT_EQ(without.find("seconds"), std::string::npos);
  EXPECT_EQ(without.find("held up"), std::string::npos);
  EXPECT_NE(without.find("gradients pushed"), std::string::npos);
  EXPECT_EQ(error_of<schedule::Error>([&] { figures::loss(head); }), "param_sync.tsv has no steps");
  EXPECT_NE(error_of<schedule::Error>([&] { figures::loss(head + "1\t2\n"); }).find("row 1 has not 8 columns"),
            std::string::npos);
}

/// The last step, from its first span on; the lanes of a layer side by side in its row.
TEST(Figures, LayersHaveRowsAndLanesPartsOfThem) {
  const auto span = [](int step, const char* what, int thread, int begin_us) {
    return std::string(R"({"ph": "X", "cat": ")") + what + R"(", "pid": 3, "tid": )" + std::to_string(thread) +
           R"(, "ts": )" + std::to_string(begin_us) + R"(, "dur": 500, "args": {"step": )" + std::to_string(step) +
           R"(, "first_layer": 2}})";
  };
  const auto figure = figures::layers(R"({"traceEvents": [{"ph": "M"},)" + span(1, "push", 1, 0) + "," +
                                      span(2, "backward", 0, 7000) + "," + span(2, "push", 1, 8000) + "," +
                                      span(2, "reduce", 2, 9000) + "]}");
  EXPECT_EQ(figure.data,
            "# begin, end (ms), row from, row to; a block for each activity\n"
            "0.000000 0.500000 0.0000 0.9000\n\n\n"
            "1.000000 1.500000 1.0000 1.4500\n\n\n"
            "2.000000 2.500000 1.4500 1.9000\n\n\n");
  EXPECT_NE(figure.script.find("'rank 3: kernels' 0.45, 'layer 2' 1.45"), std::string::npos) << figure.script;
  EXPECT_NE(error_of<schedule::Error>([] { figures::layers(R"({"traceEvents": []})"); }).find("has no spans"),
            std::string::npos);
  EXPECT_NE(error_of<schedule::Error>([] { figures::layers("x"); }).find("not a file of --trace"), std::string::npos);
}

TEST(Figures, EfficiencyIsThatOfTrainingInVirtualTime) {
  const models::Model model = models::model("vgg16");
  simulate::TrainingSettings settings;
  settings.steps = 3;
  const auto figure = figures::efficiency(model, settings, {2, 4}, {10});
  settings.nodes = 4;
  settings.network.bandwidth = 10e9 / 8;
  const std::string row = "\n4 10 ";
  const std::size_t at = figure.data.find(row);
  ASSERT_NE(at, std::string::npos) << figure.data;
  EXPECT_NEAR(std::stod(figure.data.substr(at + row.size())), 100 * simulate::train(model, settings).efficiency(),
              1e-4);
}

TEST(Figures, PredictionsAreBesideMeasurements) {
  const auto figure = figures::predicted({{"ring, 1K", false, 0.002, 0.001}, {"mesh, 1K", true, 0.003, 0.004}}, "here");
  EXPECT_EQ(figure.data,
            "# measured ms, predicted ms, what; schemes that the fit has seen, then others\n"
            "4 3 'mesh, 1K'\n\n\n1 2 'ring, 1K'\n\n\n");
}

}  // namespace
