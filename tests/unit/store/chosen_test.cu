// Pushes of the rows that matter most.
#include "param_sync/push_chosen.cuh"
#include "tests/unit/store/stores.cuh"

#include <cmath>
#include <numeric>

namespace store_test {
namespace {

using param_sync::Choice;
using param_sync::Choosing;
using param_sync::Withheld;

constexpr std::uint64_t kOfRow = 2;
constexpr std::size_t kRowCount = 40;

/// What a rank's kernel pushes: for each push, all floats of the range.
struct ChosenJob {
  StoreHandle store;
  Withheld withheld;
  Choosing choosing;
  const float* gradients = nullptr;
  std::uint64_t floats = 0;
  int pushes = 0;
  int* result = nullptr;
};

__global__ void push_all_chosen(ChosenJob job) {
  int error = 0;
  for (int i = 0; i < job.pushes && error == 0; ++i) {
    const float* const gradients = job.gradients == nullptr
                                       ? nullptr
                                       : job.gradients + static_cast<std::uint64_t>(i) * job.floats;
    error = param_sync::push_chosen(gpusock::this_block(), job.store, 0, gradients, job.withheld, job.choosing,
                                    gpusock::Deadline::after_ns(gpusock::kPatienceNs));
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// Pushes gradients of a rank, one range after the other.
class Chooser {
 public:
  Chooser(Rank& rank, const std::vector<float>& gradients, std::size_t floats, const Choosing& choosing)
      : rank_(rank),
        floats_(floats),
        gradients_(rank.context, gradients.size()),
        sum_(rank.context, floats),
        rows_(rank.context, floats),
        result_(rank.context, 1) {
    gradients_.copy_in(gradients);
    job_.store = rank.job.store;
    job_.withheld = {sum_.data(), rows_.data()};
    job_.choosing = choosing;
    job_.gradients = gradients_.data();
    job_.floats = floats;
    job_.pushes = static_cast<int>(gradients.size() / floats);
    job_.result = result_.data();
  }

  void start(unsigned threads = 3) {
    gpusock::launch(rank_.context, {.block = threads, .stream = &stream_}, push_all_chosen, job_);
  }
  template <class Kernel>
  void start_with(Kernel kernel) {
    gpusock::launch(rank_.context, {.block = 3, .stream = &stream_}, kernel, job_);
  }
  void wait() {
    stream_.synchronize();
    ASSERT_EQ(result_[0], 0);
  }
  std::vector<float> withheld() const {
    std::vector<float> all(floats_);
    sum_.copy_out(all);
    return all;
  }
  /// The next push is of all that is left.
  void push_rest() {
    job_.choosing.rows_max = ~0u;
    job_.gradients = nullptr;
    job_.pushes = 1;
    start();
    wait();
  }

 private:
  Rank& rank_;
  std::size_t floats_;
  gpusock::Stream stream_{rank_.context};
  gpusock::DeviceBuffer<float> gradients_, sum_;
  gpusock::DeviceBuffer<std::uint32_t> rows_;
  gpusock::Mapped<int> result_;
  ChosenJob job_;
};

/// Small integers: all sums of them are exact.
std::vector<float> gradients_of(int rank, int pushes) {
  std::vector<float> all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(pushes) * kRowCount * kOfRow; ++i) {
    all.push_back(static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 31) - 15);
  }
  return all;
}

std::vector<float> sum_of(const std::vector<float>& gradients) {
  std::vector<float> sum(kRowCount * kOfRow);
  for (std::size_t i = 0; i < gradients.size(); ++i) sum[i % sum.size()] += gradients[i];
  return sum;
}

const Weights kZeros{std::vector<float>(kRowCount * kOfRow)};

TEST(Chosen, TheLargestRowsArePushedAndTheOthersKept) {
  Stores stores({.clock = Async(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
  const std::vector<float> gradients = gradients_of(1, 1);
  Chooser chooser(stores[1], gradients, gradients.size(), {.rows_max = 4});
  chooser.start();
  chooser.wait();
  std::vector<std::size_t> order(kRowCount);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto size = [&](std::size_t row) {
    return gradients[2 * row] * gradients[2 * row] + gradients[2 * row + 1] * gradients[2 * row + 1];
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  std::vector<float> pushed(gradients.size()), kept = gradients;
  for (std::size_t i = 0; i < 4; ++i) {
    for (const std::size_t at : {2 * order[i], 2 * order[i] + 1}) std::swap(pushed[at], kept[at]);
  }
  EXPECT_EQ(stores[1].weights_now(), pushed);
  EXPECT_EQ(chooser.withheld(), kept);
  const std::vector<param_sync::StoreTraffic> traffic = stores[1].store->traffic();
  EXPECT_EQ(traffic[0].pushed_bytes, 24 + 4 * (4 + 2 * 4)) << "a request, and of each row its number and its floats";
  EXPECT_EQ(traffic[0].pulled_bytes, 24 + kRanks * 8 + kRowCount * kOfRow * 4);
}

/// Whatever is chosen, all ranks' gradients are in the weights at the end.
TEST(Chosen, NothingIsLost) {
  for (const Choice choice : {Choice::largest, Choice::random}) {
    for (const param_sync::AnyClock& clock : {param_sync::AnyClock(Bsp()), param_sync::AnyClock(Async())}) {
      Stores stores({.clock = clock, .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
      std::vector<std::unique_ptr<Chooser>> choosers;
      std::vector<float> expected(kRowCount * kOfRow);
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<float> gradients = gradients_of(rank, 9);
        choosers.push_back(
            std::make_unique<Chooser>(stores[rank], gradients, kRowCount * kOfRow, Choosing{5, choice, true}));
        choosers.back()->start(rank == 2 ? 300 : 3);
        for (std::size_t i = 0; i < gradients.size(); ++i) expected[i % expected.size()] += gradients[i];
      }
      for (const auto& chooser : choosers) chooser->wait();
      for (const auto& chooser : choosers) chooser->push_rest();
      stores.meet();
      EXPECT_EQ(stores[0].weights_now(), expected) << clock.index();
    }
  }
}

/// Random rows are others in each push, and for each rank.
TEST(Chosen, RandomRowsDiffer) {
  Stores stores({.clock = Async(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
  std::vector<std::vector<float>> kept;
  for (int rank = 0; rank < 2; ++rank) {
    for (int push = 0; push < 2; ++push) {
      Chooser chooser(stores[rank], std::vector<float>(kRowCount * kOfRow, 1.0f), kRowCount * kOfRow,
                      {.rows_max = 10, .choice = Choice::random});
      chooser.start();
      chooser.wait();
      kept.push_back(chooser.withheld());
      EXPECT_EQ(std::accumulate(kept.back().begin(), kept.back().end(), 0.0f), 60);
    }
  }
  for (std::size_t i = 1; i < kept.size(); ++i) EXPECT_NE(kept[i], kept[i - 1]);
}

TEST(Chosen, WithoutFeedbackTheOthersAreLost) {
  Stores stores({.clock = Async(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
  Chooser chooser(stores[0], gradients_of(0, 3), kRowCount * kOfRow, {.rows_max = 4, .keeps_others = false});
  chooser.start();
  chooser.wait();
  std::vector<float> weights = stores[0].weights_now();
  EXPECT_NE(weights, sum_of(gradients_of(0, 3)));
  EXPECT_LE(std::count_if(weights.begin(), weights.end(), [](float weight) { return weight != 0; }), 3 * 4 * 2);
}

__global__ void push_those_that_are_not_zero(ChosenJob job) {
  *job.result = param_sync::push_nonzero(gpusock::this_block(), job.store, 0, job.gradients, job.withheld.rows);
}

/// Of few rows their numbers go with them. Of many, all rows go without. Either way it is one push of the range.
TEST(Chosen, RowsThatAreNotZeroArePushed) {
  for (const std::size_t apart : {std::size_t{1}, std::size_t{2}, std::size_t{3}, kRowCount}) {
    Stores stores({.clock = Async(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
    std::vector<float> gradients(kRowCount * kOfRow);
    for (std::size_t row = 0; row < kRowCount; row += apart) gradients[row * kOfRow + row % 2] = -1.5f;
    Chooser chooser(stores[1], gradients, gradients.size(), {});
    chooser.start_with(push_those_that_are_not_zero);
    chooser.wait();
    EXPECT_EQ(stores[1].weights_now(), gradients) << apart;
    const std::size_t rows = (kRowCount + apart - 1) / apart;
    EXPECT_EQ(stores[1].store->traffic()[0].pushed_bytes, 24 + 4 * std::min(kRowCount * 2, rows * 3));
  }
}

TEST(Chosen, APushOfNothingIsAPush) {
  Stores stores({.clock = Bsp(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
  std::vector<std::unique_ptr<Chooser>> choosers;
  for (int rank = 0; rank < kRanks; ++rank) {
    choosers.push_back(std::make_unique<Chooser>(stores[rank], kZeros[0], kZeros[0].size(), Choosing{}));
    choosers.back()->start_with(push_those_that_are_not_zero);
  }
  for (const auto& chooser : choosers) chooser->wait();
  EXPECT_EQ(stores[2].weights_now(), kZeros[0]) << "and no rank waits for another one's push";
}

/// A whole range goes if it takes no more words than its rows with their numbers: that depends on rows and format.
TEST(Chosen, TheShorterMessageIsTaken) {
  for (const auto format : {param_sync::WireFormat::float32, param_sync::WireFormat::int8}) {
    StoreOptions options{.clock = Async(), .row_floats = 16, .rows_max = 40};
    options.push_format = format;
    Stores stores(options, {std::vector<float>(640)});
    std::vector<float> gradients(640);
    for (std::size_t row = 0; row < 39; ++row) gradients[row * 16] = 1;
    Chooser chooser(stores[0], gradients, gradients.size(), {});
    chooser.start_with(push_those_that_are_not_zero);
    chooser.wait();
    const std::size_t rows = format == param_sync::WireFormat::float32 ? 39 * 17 : 39 * 6,
                      all = format == param_sync::WireFormat::float32 ? 640 : 170;
    EXPECT_EQ(stores[0].store->traffic()[0].pushed_bytes, 24 + 4 * std::min(rows, all));
  }
}

/// Floats whose squares are too small for a float are chosen by their size, too.
TEST(Chosen, SmallFloatsAreChosen) {
  Stores stores({.clock = Async(), .rows_max = 10}, {std::vector<float>(10)});
  std::vector<float> gradients(10, 1e-30f);
  gradients[7] = -2e-30f;
  Chooser chooser(stores[0], gradients, 10, {.rows_max = 1});
  chooser.start(1);
  chooser.wait();
  std::vector<float> expected(10);
  expected[7] = -2e-30f;
  EXPECT_EQ(stores[0].weights_now(), expected);
}

TEST(Chosen, RowsOfSmallFloatsAreNotZero) {
  Stores stores({.clock = Async(), .row_floats = kOfRow, .rows_max = kRowCount}, kZeros);
  std::vector<float> gradients(kRowCount * kOfRow);
  gradients[5] = 1e-30f;
  Chooser chooser(stores[0], gradients, gradients.size(), {});
  chooser.start_with(push_those_that_are_not_zero);
  chooser.wait();
  EXPECT_EQ(stores[0].weights_now(), gradients);
}

}  // namespace
}  // namespace store_test
