/// @file The kernels against a double-precision reference, and the reference against finite differences.
#include "arithmetic/model.hpp"

#include "param_sync/update/update.hpp"
#include "layout/random.hpp"
#include "reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace param_sync {
namespace {

using testing::reference_step;
using testing::ReferenceResult;

struct Case {
  std::vector<std::uint32_t> widths;
  std::uint32_t batch;
  std::vector<AnyLayer> layers = {};  // instead of a perceptron of these widths
  std::uint32_t columns = 0;          // 0: an image is one row
  std::uint32_t border = 0;
};

/// A convolution of an image, and a layer that makes classes of it.
Case convolution(ImageShape image, std::uint32_t kernel, std::uint32_t channels, std::uint32_t pool,
                 std::uint32_t batch, Activation activation = Activation::relu) {
  const Conv2d first = Conv2d::of(image, kernel, channels, pool, activation);
  return {{first.inputs, 3}, batch, {first, Dense::of(first.outputs, 3, Activation::none)}};
}

/// Two convolutions: the second one passes gradients on to the first one's windows.
Case two_convolutions(ImageShape image, std::uint32_t pool, std::uint32_t batch) {
  const Conv2d first = Conv2d::of(image, 3, 5, pool, Activation::relu);
  const Conv2d second = Conv2d::of(first.output_image(), 2, 6, pool, Activation::relu);
  return {{first.inputs, 3}, batch, {first, second, Dense::of(second.outputs, 3, Activation::none)}};
}

Case lenet_of(std::uint32_t rows, std::uint32_t columns, std::uint32_t batch) {
  return {{rows * columns, 10}, batch, lenet(rows, columns, 10), columns, kLenetBorder};
}

/// A convolution, normalized, and a layer that makes classes of it.
Case normalized(ImageShape image, std::uint32_t kernel, std::uint32_t channels, std::uint32_t pool, std::uint32_t batch,
                Activation activation = Activation::relu) {
  const Conv2d first = Conv2d::of(image, kernel, channels, pool, Activation::none);
  return {{first.inputs, 3},
          batch,
          {first, BatchNorm::of(first.output_image(), activation), Dense::of(first.outputs, 3, Activation::none)}};
}

/// True if the parameter is an average of batch norm: no loss depends on it in training.
bool is_average(const Layout& layout, std::size_t parameter) {
  for (const Layer& layer : layout.layers) {
    if (!std::holds_alternative<BatchNorm>(layer.kind) || parameter - layer.offset >= layer.parameters()) continue;
    return (parameter - layer.offset) % BatchNorm::kOfChannel >= BatchNorm::kMean;
  }
  return false;
}

/// Random samples and parameters for a model.
struct Problem {
  Layout layout;
  Samples samples;
  std::vector<std::uint32_t> order;
  std::vector<float> parameters;

  explicit Problem(const Case& at, std::uint64_t seed = 3)
      : layout(at.layers.empty() ? make_layout(at.widths, 1) : make_layout(at.layers, 1)) {
    layout.border = at.border;
    Random random(seed);
    const std::uint32_t count = at.batch + 5;  // some are not visited
    samples.columns = at.columns == 0 ? at.widths.front() : at.columns;
    samples.rows = at.widths.front() / samples.columns;
    for (std::uint32_t i = 0; i < count * samples.pixels(); ++i)
      samples.images.push_back(static_cast<std::uint8_t>(random.below(256)));
    for (std::uint32_t i = 0; i < count; ++i)
      samples.labels.push_back(static_cast<std::uint8_t>(random.below(at.widths.back())));
    for (std::uint32_t i = 0; i < at.batch; ++i) order.push_back(static_cast<std::uint32_t>(random.below(count)));
    parameters = initial_weights(layout, seed);
    for (float& value : parameters) value += 0.1f * random.symmetric();  // biases, too
  }

  std::vector<double> inputs() const {
    const std::uint32_t border = layout.border, wide = samples.columns + 2 * border, high = samples.rows + 2 * border;
    std::vector<double> values(order.size() * wide * high, -0.2860 / 0.3530);
    for (std::size_t at = 0; at < order.size(); ++at) {
      for (std::uint32_t i = 0; i < samples.pixels(); ++i) {
        const std::uint32_t row = i / samples.columns + border, column = i % samples.columns + border;
        const double pixel = samples.images[order[at] * samples.pixels() + i] / 255.0;
        values[(at * high + row) * wide + column] = (pixel - 0.2860) / 0.3530;
      }
    }
    return values;
  }
  std::vector<std::uint8_t> labels() const {
    std::vector<std::uint8_t> values;
    for (const std::uint32_t sample : order) values.push_back(samples.labels[sample]);
    return values;
  }
  ReferenceResult reference() const {
    return reference_step(layout, {parameters.begin(), parameters.end()}, inputs(), labels());
  }
};

/// What one step of the kernels leaves behind.
struct KernelResult {
  std::vector<std::vector<float>> outputs;
  float loss = 0;
  std::uint64_t board_steps = 0;
  std::vector<float> gradient;
  Score score{};
};

KernelResult run_kernels(const Problem& problem, float rate_share = 1.0f, unsigned threads = kComputeThreads) {
  gpusock::Context context;
  gpusock::Stream stream(context);
  const auto batch = static_cast<std::uint32_t>(problem.order.size());
  Model model(context, stream, problem.layout, threads);
  DeviceSamples samples(context, problem.samples, problem.order);
  Activations activations(context, problem.layout, batch);
  gpusock::DeviceBuffer<float> parameters(context, problem.parameters.size()),
      gradient(context, problem.parameters.size());
  gpusock::Mapped<float> losses(context, 3);
  gpusock::Mapped<StepBoard> board(context, 1);
  gpusock::Mapped<Score> score(context, 1);
  parameters.copy_in(problem.parameters);

  model.evaluate(samples, parameters.data(), activations, score.data());
  model.gather(samples.from(0), batch, activations);
  for (int i = 0; i < problem.layout.size(); ++i) model.forward(i, parameters.data(), batch, activations);
  model.loss(samples.from(0), batch, activations, rate_share, losses.data(), board.data(), 1);
  for (int i = problem.layout.size() - 1; i >= 0; --i) {
    model.backward_parameters(i, parameters.data(), batch, activations, gradient.data());
    if (i > 0) model.backward_input(i, parameters.data(), batch, activations);
  }
  stream.synchronize();

  KernelResult result;
  for (int i = 0; i < problem.layout.size(); ++i) {
    auto& output = result.outputs.emplace_back(std::size_t{batch} * problem.layout[i].outputs());
    activations.copy_output(i, output);
  }
  result.loss = losses[1];
  result.board_steps = board[0].steps;
  result.gradient.resize(gradient.size());
  gradient.copy_out(result.gradient);
  result.score = score[0];
  return result;
}

class ModelKernels : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#if defined(GPUSOCK_DEVICE_CUDA)
    try {
      gpusock::Context probe;
    } catch (const gpusock::Error& error) {
      GTEST_SKIP() << error.what();
    }
#endif
  }
};

template <class Wanted, class Got>
void expect_near(const Wanted& wanted, const Got& got, double relative, const char* what) {
  ASSERT_EQ(wanted.size(), got.size());
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(wanted[i], got[i], relative * largest) << what << ", element " << i;
  }
}

TEST_P(ModelKernels, AgreeWithTheReference) {
  const Problem problem(GetParam());
  const ReferenceResult wanted = problem.reference();
  const KernelResult got = run_kernels(problem);
  for (std::size_t i = 0; i < wanted.outputs.size(); ++i)
    expect_near(wanted.outputs[i], got.outputs[i], 1e-5, "output");
  expect_near(wanted.gradient, got.gradient, 2e-5, "gradient");
  EXPECT_NEAR(wanted.mean_loss, got.loss, 1e-5 * std::abs(wanted.mean_loss));
  EXPECT_EQ(got.board_steps, 2u);
}

TEST_P(ModelKernels, MultiplyTheGradientAloneByTheShareOfTheRate) {
  const Problem problem(GetParam());
  const KernelResult whole = run_kernels(problem), quarter = run_kernels(problem, 0.25f);
  for (std::size_t i = 0; i < whole.gradient.size(); ++i) ASSERT_EQ(quarter.gradient[i], 0.25f * whole.gradient[i]);
  EXPECT_EQ(quarter.loss, whole.loss);
}

TEST_P(ModelKernels, ScoreCountsWhatIsRight) {
  const Problem problem(GetParam());
  const ReferenceResult wanted = problem.reference();
  const KernelResult got = run_kernels(problem);
  const auto labels = problem.labels();
  const std::size_t classes = problem.layout.layers.back().outputs();
  std::uint64_t correct = 0;
  for (std::size_t sample = 0; sample < labels.size(); ++sample) {
    const auto first = wanted.outputs.back().begin() + static_cast<std::ptrdiff_t>(sample * classes);
    correct += std::max_element(first, first + static_cast<std::ptrdiff_t>(classes)) - first == labels[sample] ? 1 : 0;
  }
  EXPECT_EQ(got.score.correct, correct);
  EXPECT_NEAR(got.score.loss, wanted.mean_loss * static_cast<double>(labels.size()), 1e-4 * got.score.loss);
}

TEST_P(ModelKernels, AreTheSameBitForBitOnEveryRun) {
  const Problem problem(GetParam());
  const KernelResult first = run_kernels(problem), second = run_kernels(problem);
  EXPECT_EQ(first.gradient, second.gradient);
  EXPECT_EQ(first.outputs, second.outputs);
  EXPECT_EQ(first.loss, second.loss);
}

/// Threads of a block share tiles. On the CPU device a block has one thread, so this runs what GPUs run.
TEST_P(ModelKernels, HaveTheSameBitsWithAnyNumberOfThreads) {
  const Problem problem(GetParam());
  const KernelResult wanted = run_kernels(problem, 1.0f, 1);
  for (const unsigned threads : {3u, kBlockTiles}) {
    const KernelResult got = run_kernels(problem, 1.0f, threads);
    EXPECT_EQ(got.outputs, wanted.outputs) << threads;
    EXPECT_EQ(got.gradient, wanted.gradient) << threads;
    EXPECT_EQ(got.score.loss, wanted.score.loss) << threads;
  }
}

/// The problem with fully connected layers that are cut into bands of at most so many bytes.
Problem cut(Problem problem, std::uint64_t bytes) {
  for (Layer& layer : problem.layout.layers) {
    if (Dense* const dense = std::get_if<Dense>(&layer.kind)) dense->band_bytes = bytes;
  }
  return problem;
}

TEST_P(ModelKernels, HaveTheSameBitsIfLayersAreCut) {
  const Problem whole(GetParam());
  const KernelResult wanted = run_kernels(whole);
  for (const std::uint64_t bytes : {kBandBytesMin, std::uint64_t{2000}, std::uint64_t{1} << 40}) {
    const KernelResult got = run_kernels(cut(whole, bytes));
    EXPECT_EQ(got.outputs, wanted.outputs) << bytes;
    EXPECT_EQ(got.gradient, wanted.gradient) << bytes;
    EXPECT_EQ(got.score.loss, wanted.score.loss) << bytes;
  }
}

/// What a step passes on, layer by layer: outputs of 784 x 128 in bands of 2 rows of weights, errors of 128 x 64 in
/// bands of 2 columns; above a layer that pools, none.
TEST(CutLayers, SayWhatTheyPassOn) {
  const Layout layout = cut(Problem({{784, 128, 64, 10}, 5}), kBandBytesMin).layout;
  EXPECT_EQ(layout[0].bands(), 392u);
  EXPECT_EQ(layout[0].passed_sums(5, nullptr), 5u * 128 * 391);
  EXPECT_EQ(layout[1].passed_sums(5, &layout[0]), 5u * 64 * 31 + 5u * 128 * 31);
  const Layout pooled = cut(Problem(lenet_of(12, 13, 5)), kBandBytesMin).layout;
  EXPECT_EQ(pooled[0].bands(), 1u);
  EXPECT_EQ(pooled[2].passed_sums(5, &pooled[1]), pooled[2].passed_sums(5, nullptr));
}

// Widths and batches around the tile (8 rows, 4 columns) and the block, and the default model's.
INSTANTIATE_TEST_SUITE_P(Shapes, ModelKernels,
                         ::testing::Values(Case{{784, 128, 64, 10}, 64}, Case{{16, 8, 4}, 8}, Case{{17, 9, 5}, 9},
                                           Case{{15, 7, 3}, 7}, Case{{1, 1, 2}, 1}, Case{{5, 300, 2}, 3},
                                           Case{{30, 20, 16, 12, 10}, 130}, Case{{9, 4}, 5},
                                           Case{{6, 5, 4},
                                                3,
                                                {Dense::of(6, 5, Activation::none), Dense::of(5, 7, Activation::relu),
                                                 Dense::of(7, 4, Activation::none)}}));

// Images and kernels that fill no tile and no window, sums that fill no whole window, and the trainer's model.
INSTANTIATE_TEST_SUITE_P(Convolutions, ModelKernels,
                         ::testing::Values(convolution({5, 7, 1}, 3, 2, 1, 9), convolution({5, 7, 3}, 3, 5, 2, 7),
                                           convolution({9, 4, 2}, 2, 9, 3, 8), convolution({1, 1, 1}, 1, 1, 1, 1),
                                           convolution({6, 6, 5}, 3, 4, 2, 17, Activation::none),
                                           two_convolutions({9, 8, 2}, 1, 8), two_convolutions({13, 12, 3}, 2, 11),
                                           lenet_of(12, 13, 10)));

/// Models whose outputs of a sample depend on the batch.
class BatchNormKernels : public ModelKernels {};

TEST_P(BatchNormKernels, AgreeWithTheReference) {
  const Problem problem(GetParam());
  const ReferenceResult wanted = problem.reference();
  const KernelResult got = run_kernels(problem);
  for (std::size_t i = 0; i < wanted.outputs.size(); ++i)
    expect_near(wanted.outputs[i], got.outputs[i], 2e-5, "output");
  expect_near(wanted.gradient, got.gradient, 1e-4, "gradient");
  EXPECT_EQ(run_kernels(problem).gradient, got.gradient);
}

TEST_P(BatchNormKernels, TakeAveragesAfterTheTraining) {
  Problem problem(GetParam());
  const ReferenceResult in_training = problem.reference();
  const KernelResult got = run_kernels(problem);
  for (Layer& layer : problem.layout.layers) {
    std::visit([&](const auto& kind) { layer.kind = evaluated(kind); }, layer.kind);
  }
  const ReferenceResult wanted = problem.reference();
  EXPECT_NEAR(got.score.loss, wanted.mean_loss * static_cast<double>(problem.order.size()), 1e-4 * got.score.loss);
  EXPECT_NE(wanted.mean_loss, in_training.mean_loss);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormKernels,
                         ::testing::Values(normalized({5, 7, 1}, 3, 2, 1, 9), normalized({5, 7, 3}, 3, 5, 2, 7),
                                           normalized({6, 6, 5}, 3, 4, 2, 17, Activation::none),
                                           Case{{12 * 13, 10}, 10, lenet(12, 13, 10, true), 13, kLenetBorder}));

class References : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, References,
                         ::testing::Values(Case{{6, 5, 4, 3}, 4}, convolution({5, 7, 2}, 3, 2, 1, 3),
                                           two_convolutions({6, 5, 2}, 1, 3), two_convolutions({13, 12, 1}, 2, 3),
                                           normalized({6, 5, 2}, 2, 3, 2, 4)));

TEST_P(References, TheirGradientAgreesWithFiniteDifferences) {
  const Problem problem(GetParam());
  const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
  const auto loss_at = [&](std::size_t i, double change) {
    auto moved = parameters;
    moved[i] += change;
    return reference_step(problem.layout, moved, problem.inputs(), problem.labels()).mean_loss *
           static_cast<double>(problem.order.size());
  };
  const auto gradient = problem.reference().gradient;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (is_average(problem.layout, i)) continue;
    const double slope = (loss_at(i, 1e-6) - loss_at(i, -1e-6)) / 2e-6;
    EXPECT_NEAR(gradient[i], slope, 1e-6 * std::max(1.0, std::abs(slope))) << "parameter " << i;
  }
}

TEST(Sgd, HasMomentum) {
  const Sgd sgd{0.5f, 0.25f, 0.125f};  // exact in binary
  float velocity = 4, weight = 10;
  sgd.apply(16, {&velocity, 1}, weight);
  EXPECT_EQ(velocity, 0.25f * 4 + 0.125f * 16);
  EXPECT_EQ(weight, 10 - 0.5f * 3);
  sgd.apply(0, {&velocity, 1}, weight);
  EXPECT_EQ(velocity, 0.75f);
  EXPECT_EQ(weight, 8.5f - 0.375f);
}

TEST(Sgd, HasNesterovsMomentum) {
  const Sgd sgd{0.5f, 0.25f, 0.125f, true};
  float velocity = 4, weight = 10;
  sgd.apply(16, {&velocity, 1}, weight);
  EXPECT_EQ(velocity, 3);
  EXPECT_EQ(weight, 10 - 0.5f * (0.25f * 3 + 2));
}

}  // namespace
}  // namespace param_sync
