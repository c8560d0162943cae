// Parameter servers whose ranks send only so many bytes in a step: the largest changes, and nothing is lost.
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/handover.cuh"
#include "param_sync/codec/largest.cuh"
#include "param_sync/codec/top_k.cuh"
#include "trial/local_ranks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

namespace budget_test {
namespace {

using namespace param_sync;
using executor::LocalRanks;

struct Chosen {
  std::uint32_t count;
  std::uint32_t index_of[1000];  // of each that was chosen, from 1 on
};

__global__ void choose(const float* values, std::uint32_t count, std::uint32_t most, Chosen* chosen) {
  const std::uint32_t taken = codec::take_largest(
      count, most, [&](std::uint32_t i) { return values[i]; },
      [&](std::uint32_t i, std::uint32_t index) { chosen->index_of[i] = index + 1; });
  if (threadIdx.x == 0) chosen->count = taken;
}

/// As take_largest() says, by sorting.
std::vector<std::uint32_t> indices_of_largest(const std::vector<float>& values, std::uint32_t most) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  order.resize(std::min<std::size_t>(order.size(), most));
  std::erase_if(order, [&](std::size_t i) { return values[i] == 0; });
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> indices(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) indices[order[i]] = static_cast<std::uint32_t>(i) + 1;
  return indices;
}

TEST(Largest, AreTakenInTheirOrderAndOfEqualOnesTheFirst) {
  gpusock::Context context;
  const gpusock::Mapped<float> values(context, 1000);
  const gpusock::Mapped<Chosen> chosen(context, 1);
  for (const std::uint32_t count : {1u, 7u, schedule_test::kFew ? 60u : 1000u}) {
    for (const unsigned kinds : {1u, 5u, 100'000u}) {  // of one size; some that are equal, zeros among them; many
      std::vector<float> all(count);
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto kind = static_cast<float>(i * 7919 % kinds);
        all[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (kinds == 1 ? 3 : kind * kind * 1e-3f);
      }
      std::copy(all.begin(), all.end(), values.data());
      for (const std::uint32_t most : {0u, 1u, 3u, 500u, 1000u}) {
        for (const unsigned threads : {1u, 3u, codec::kChoosingThreadsMax + 1}) {
          if (threads > 3 && (kinds != 5 || most != 3)) continue;  // so many take their time
          chosen[0] = {};
          gpusock::launch(context, {.block = threads}, choose, values.data(), count, most, chosen.data());
          context.synchronize();
          const std::vector<std::uint32_t> wanted = indices_of_largest(all, most);
          const std::vector<std::uint32_t> got(chosen[0].index_of, chosen[0].index_of + count);
          ASSERT_EQ(got, wanted) << count << " " << kinds << " " << most << " " << threads;
          ASSERT_EQ(chosen[0].count, *std::max_element(wanted.begin(), wanted.end()));
        }
      }
    }
  }
}

constexpr float kWeight = 10, kRate = 0.5f;

/// Whole numbers, whose sums have no rounding; of many sizes, some of them 0.
GPUSOCK_FN float gradient_of(int rank, std::uint64_t i) {
  const auto mixed = static_cast<int>((i * 7919 + static_cast<std::uint64_t>(rank) * 104'729) % 2003);
  return static_cast<float>(mixed % 3 == 0 ? 0 : mixed - 1001);
}

/// What the kernels of a training do: in each step they compute the same gradients, and use the weights.
__global__ void train(executor::ExchangeWords* words, float* gradients, const float* weights, float* history, int rank,
                      std::uint64_t floats, std::uint64_t steps, std::uint64_t* failed, std::uint64_t* stop) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::uint64_t i = 0; i < floats; ++i) gradients[i] = gradient_of(rank, i);
    executor::hand_over(*words);
    while (!executor::has_version(*words, step + 1)) {
      if (executor::DeviceWord(*failed).load(cuda::memory_order_relaxed) != 0) return;  // relaxed: it only ends waits
      if (executor::SystemWord(*stop).load(cuda::memory_order_relaxed) != 0) return;
      __nanosleep(1'000);
    }
    for (std::uint64_t i = 0; i < floats; ++i) history[step * floats + i] = weights[i];
  }
}

struct Shape {
  const char* scheme = "ps:even";
  int nodes = 2;
  std::uint64_t floats = 1000;
  std::uint64_t steps = 6;
  std::uint64_t unit_bytes = 0;
  gpusock::LinkKind link = gpusock::LinkKind::p2p;
  codec::ChangeOrder order = codec::ChangeOrder::largest;
};

struct Memory {
  Memory(gpusock::Context& context, const Shape& shape)
      : weights(context, shape.floats),
        velocity(context, shape.floats),
        history(context, shape.floats * shape.steps),
        words(context, 1),
        times(context, 1),
        failed(context, 1),
        stop(context, 1) {
    weights.copy_in(std::vector<float>(shape.floats, kWeight));
  }
  gpusock::DeviceBuffer<float> weights, velocity, history;
  gpusock::DeviceBuffer<executor::ExchangeWords> words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> times;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<std::uint64_t> stop;
};

class Training {
 public:
  explicit Training(const Shape& shape, executor::Execution execution = {.weights_apart = true})
      : shape_(shape),
        ranks_({executor_test::make(shape.scheme, shape.nodes, 12)}, shape.link, settings(shape, execution),
               2 * shape.floats) {
    for (int rank = 0; rank < shape.nodes; ++rank) {
      memory_.push_back(std::make_unique<Memory>(ranks_.context(rank), shape));
    }
  }

  void prepare(int rank, std::uint64_t budget_bytes, std::uint64_t floats) {
    Memory& own = at(rank);
    executor::Exchanged tensor;
    tensor.gradients = ranks_.tensor(rank).data();
    tensor.count = floats;
    tensor.optimizing = {Sgd{kRate, 0, 1}, {own.velocity.data(), shape_.floats}, own.weights.data()};
    executor::Residence residence;
    residence.steps = shape_.steps;
    residence.timeout_ns = executor_test::kTimeoutNs;
    residence.words = own.words.data();
    residence.times = own.times.data();
    residence.failed = own.failed.data();
    residence.stop = own.stop.data();
    residence.codec = codec::TopKSettings{budget_bytes, shape_.order};
    ranks_.executor(rank).prepare_resident({&tensor, 1}, residence);
  }
  void start() {
    for (int rank = 0; rank < shape_.nodes; ++rank) ranks_.executor(rank).start_resident();
    for (int rank = 0; rank < shape_.nodes; ++rank) {
      Memory& own = at(rank);
      gpusock::launch(ranks_.context(rank), {}, train, own.words.data(), ranks_.tensor(rank).data(), own.weights.data(),
                      own.history.data(), rank, shape_.floats, shape_.steps, own.failed.data(), own.stop.data());
    }
  }
  void run(std::uint64_t budget_bytes) {
    for (int rank = 0; rank < shape_.nodes; ++rank) prepare(rank, budget_bytes, shape_.floats);
    start();
    for (int rank = 0; rank < shape_.nodes; ++rank) {
      ranks_.executor(rank).await_resident();
      ranks_.context(rank).synchronize();
      ASSERT_FALSE(ranks_.executor(rank).failure().has_value());
    }
  }

  Memory& at(int rank) { return *memory_[static_cast<std::size_t>(rank)]; }
  LocalRanks& ranks() { return ranks_; }

  /// After a step.
  std::vector<float> weights(int rank, std::uint64_t step) {
    std::vector<float> all(shape_.floats * shape_.steps);
    at(rank).history.copy_out(all);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(step * shape_.floats);
    return {begin, begin + static_cast<std::ptrdiff_t>(shape_.floats)};
  }
  std::uint64_t sent_bytes(int rank) {
    executor::ExchangeWords words{};
    at(rank).words.copy_out({&words, 1});
    return words.pushed_bytes + words.published_bytes;
  }

 private:
  static executor::Settings settings(const Shape& shape, executor::Execution execution) {
    executor::Settings settings;
    settings.ring_bytes = 4 << 10;
    settings.unit_bytes = shape.unit_bytes;
    settings.last_words = executor::LastWordsBy::host;  // as a training has it
    settings.execution = execution;
    return settings;
  }

  Shape shape_;
  LocalRanks ranks_;
  std::vector<std::unique_ptr<Memory>> memory_;  // of kernels that have ended before the ranks do
};

/// What all steps without a budget would make of it.
std::vector<float> weights_at_end(const Shape& shape) {
  std::vector<float> all(shape.floats, kWeight);
  for (std::uint64_t i = 0; i < shape.floats; ++i) {
    for (int rank = 0; rank < shape.nodes; ++rank) {
      all[i] -= kRate * static_cast<float>(shape.steps) * gradient_of(rank, i);
    }
  }
  return all;
}

TEST(Budget, HoldsInAllStepsButTheLastAndNothingIsLost) {
  for (const Shape& shape : {Shape{.nodes = 3, .unit_bytes = 100},  // several passes
                             Shape{.scheme = "ps", .nodes = 3, .link = gpusock::LinkKind::tcp}, Shape{.floats = 5},
                             Shape{.nodes = 1}, Shape{.nodes = 3, .order = codec::ChangeOrder::random},
                             Shape{.nodes = 3, .order = codec::ChangeOrder::oldest}}) {
    std::vector<std::uint64_t> all_bytes(3);  // of all steps without a limit, by rank
    for (const std::uint64_t budget : {std::uint64_t{1} << 30, std::uint64_t{3000}}) {
      SCOPED_TRACE(std::string(shape.scheme) + " " + std::to_string(shape.floats) + " " + std::to_string(budget));
      Training training(shape);
      ASSERT_NO_FATAL_FAILURE(training.run(budget));
      for (int rank = 0; rank < shape.nodes; ++rank) {
        EXPECT_EQ(training.weights(rank, shape.steps - 1), weights_at_end(shape)) << rank;
        for (std::uint64_t step = 0; step < shape.steps; ++step) {
          EXPECT_EQ(training.weights(rank, step), training.weights(0, step)) << "all ranks have the same";
        }
        std::uint64_t& all = all_bytes[static_cast<std::size_t>(rank)];
        const std::uint64_t sent = training.sent_bytes(rank);
        if (all == 0) {
          all = sent;
        } else if (budget < all / shape.steps) {
          EXPECT_LE(sent, budget * (shape.steps - 1) + all / shape.steps);
          EXPECT_GT(sent, budget * (shape.steps - 1) * 9 / 10) << "the budget is used";
        } else {
          EXPECT_EQ(sent, all);
        }
      }
    }
  }
}

/// Rank 0 has the first half of the weights, and rank 1 the other one. A budget of 100 changes each way: as many
/// weights change in each half as the other rank's largest gradients say, if the owner's own are left out of account.
TEST(Budget, TheLargestChangesAreSentFirst) {
  const Shape shape{.steps = 2};
  Training training(shape);
  constexpr std::uint64_t kChanges = 20;  // of each chunk; 6 chunks of a rank are in one message
  training.run((2 * 32) + 2 * 6 * kChanges * 8);
  const std::vector<float> after_one = training.weights(0, 0);
  const executor::Cut cut{shape.floats, shape.floats, 12};
  for (std::uint32_t chunk = 0; chunk < 12; ++chunk) {
    const int owner = chunk < 6 ? 0 : 1;
    // What the owner makes of a step: its own gradients, and the other rank's largest.
    std::vector<float> theirs, made;
    for (std::uint64_t i = cut.chunk_begin(chunk); i < cut.chunk_begin(chunk + 1); ++i) {
      theirs.push_back(gradient_of(1 - owner, i));
      made.push_back(gradient_of(owner, i));
    }
    const auto most = static_cast<std::uint32_t>(static_cast<double>(made.size()) * 6 * kChanges / (shape.floats / 2));
    const std::vector<std::uint32_t> pushed = indices_of_largest(theirs, most);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = -kRate * (made[i] + (pushed[i] != 0 ? theirs[i] : 0));
    const std::vector<std::uint32_t> published = indices_of_largest(made, most);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const float wanted = kWeight + (published[i] != 0 ? made[i] : 0);
      ASSERT_EQ(after_one[cut.chunk_begin(chunk) + i], wanted) << "chunk " << chunk << ", float " << i;
    }
  }
}

/// Encodes equal gradients for some steps, and counts how often each float was sent.
__global__ void send_in_order(codec::TopK codec, float* gradients, std::uint32_t floats, std::uint64_t steps,
                              unsigned* sent, std::uint32_t* most) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (threadIdx.x == 0) {
      for (std::uint32_t i = 0; i < floats; ++i) gradients[i] = 1;
    }
    __syncthreads();
    const codec::Part part{0, floats, 0, step};
    codec.encode_gradients(part, gradients);
    const auto encoded = codec.encoded(part);
    if (threadIdx.x == 0) {
      for (std::uint64_t i = 0; i < encoded.count; ++i) ++sent[encoded.elements[i].index];
      *most = max(*most, static_cast<std::uint32_t>(encoded.count));
    }
    __syncthreads();
  }
}

/// How often each of 1000 floats is sent in 20 steps, in each of which 50 may be sent.
std::vector<unsigned> times_sent(codec::ChangeOrder order) {
  constexpr std::uint32_t kFloats = 1000;
  gpusock::Context context;
  gpusock::DeviceBuffer<float> withheld(context, kFloats), made(context, kFloats), gradients(context, kFloats);
  gpusock::DeviceBuffer<codec::Change> changes(context, kFloats);
  gpusock::DeviceBuffer<std::uint32_t> chosen(context, 1);
  gpusock::Mapped<unsigned> sent(context, kFloats);
  gpusock::Mapped<std::uint32_t> most(context, 1);
  const codec::TopK codec(withheld.data(), made.data(), changes.data(), chosen.data(), 0.05, 1000, order);
  gpusock::launch(context, {.block = 2}, send_in_order, codec, gradients.data(), kFloats, std::uint64_t{20},
                  sent.data(), most.data());
  context.synchronize();
  EXPECT_EQ(most[0], 50);
  return {sent.data(), sent.data() + kFloats};
}

TEST(Budget, OtherOrdersAreWhatTheySay) {
  EXPECT_EQ(times_sent(codec::ChangeOrder::oldest), std::vector<unsigned>(1000, 1)) << "each has its turn";
  const std::vector<unsigned> random = times_sent(codec::ChangeOrder::random);
  EXPECT_EQ(std::accumulate(random.begin(), random.end(), 0u), 1000u);
  const auto never = std::count(random.begin(), random.end(), 0u);
  EXPECT_GT(never, 300);  // 0.95^20 of 1000 is 358
  EXPECT_LT(never, 420);
  EXPECT_LE(*std::max_element(random.begin(), random.end()), 8u);
}

TEST(Budget, IsRefusedWhereItCannotBeKept) {
  const auto refusal = [](const Shape& shape, executor::Execution execution, std::uint64_t budget_bytes) {
    Training training(shape, execution);
    return gpusock::test::error_of([&] { training.prepare(0, budget_bytes, shape.floats); });
  };
  const std::string cannot = "can keep to no budget";
  EXPECT_NE(refusal({.scheme = "ring"}, {.weights_apart = true}, 1000).find(cannot), std::string::npos);
  EXPECT_NE(refusal({}, {.rank_order = true, .weights_apart = true}, 1000).find(cannot), std::string::npos);
  EXPECT_NE(refusal({}, {.weights_apart = true}, 63)
                .find("rank 0 sends 2 messages in a step, whose headers alone have 64 bytes"),
            std::string::npos);
}

/// Of changes that are not of the receiver's chunks none is taken.
TEST(Budget, ARankThatGivesATensorOfAnotherSizeIsRefused) {
  const Shape shape;
  Training training(shape);
  training.prepare(0, 500, shape.floats / 2);
  training.prepare(1, 500, shape.floats);
  training.start();
  std::optional<executor::ExecutionFailure> failure;
  for (int rank = 0; !failure; rank = 1 - rank) failure = training.ranks().executor(rank).failure();
  EXPECT_EQ(failure->error, EPROTO);
  for (int rank = 0; rank < 2; ++rank) {
    executor::SystemWord(training.at(rank).stop[0]).store(1, cuda::memory_order_relaxed);  // relaxed: it ends waits
    training.ranks().context(rank).cancel();
  }
  for (int rank = 0; rank < 2; ++rank) {
    training.ranks().executor(rank).await_resident();
    training.ranks().context(rank).synchronize();
  }
}

}  // namespace
}  // namespace budget_test
