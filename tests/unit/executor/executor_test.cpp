// Each scheme's sums over real sockets, beside sums of doubles.
#include "trial/local_ranks.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

namespace {

using namespace param_sync;
using executor::LocalRanks;
using executor::Settings;
using executor_test::kTimeoutNs;
using executor_test::make;
using schedule::Schedule;

bool test_all() { return std::getenv("SCHEDULE_TEST_ALL") != nullptr; }

/// The floats that a rank begins with; negative ones too, so that sums cancel.
std::vector<float> input_of(int rank, std::uint64_t count, std::uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed * 1009 + static_cast<std::uint64_t>(rank) + 1));
  std::vector<float> all(count);
  for (float& value : all) value = static_cast<float>(static_cast<int>(random() % 2'000'001) - 1'000'000) / 7919.0f;
  return all;
}

void fill(LocalRanks& ranks, std::uint64_t count, std::uint64_t seed) {
  for (int rank = 0; rank < ranks.nodes() && count != 0; ++rank) {
    ranks.tensor(rank).copy_in(input_of(rank, count, seed));
  }
}

std::vector<float> tensor_of(LocalRanks& ranks, int rank, std::uint64_t count) {
  std::vector<float> all(count);
  if (count != 0) ranks.tensor(rank).copy_out(all);
  return all;
}

/// Each worker has the sum of all workers' data, whose inputs are those of this seed.
void expect_sums(LocalRanks& ranks, const Schedule& schedule, std::uint64_t count, std::uint64_t seed) {
  std::vector<double> sums(count), sizes(count);
  for (int rank = 0; rank < schedule.workers; ++rank) {
    const std::vector<float> input = input_of(rank, count, seed);
    for (std::uint64_t i = 0; i < count; ++i) {
      sums[i] += static_cast<double>(input[i]);
      sizes[i] += std::fabs(static_cast<double>(input[i]));
    }
  }
  for (int rank = 0; rank < schedule.workers; ++rank) {
    const std::vector<float> got = tensor_of(ranks, rank, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      // Each of P - 1 additions rounds by half a unit of its size at most.
      ASSERT_NEAR(got[i], sums[i], sizes[i] * (schedule.workers - 1) * 0x1p-24)
          << schedule.scheme << ", " << schedule.nodes() << " ranks, rank " << rank << ", float " << i << " of "
          << count;
    }
  }
}

void run_and_expect_sums(LocalRanks& ranks, std::size_t index, std::uint64_t count, std::uint64_t seed) {
  fill(ranks, count, seed);
  ASSERT_NO_THROW(ranks.run(index, count, kTimeoutNs));
  expect_sums(ranks, ranks.executor(0).schedule(index), count, seed);
}

struct Case {
  gpusock::LinkKind link;
  int nodes;
};

class Executed : public testing::TestWithParam<Case> {};

/// A ring here has room for just one unit of a chunk with its header: no executor could do with less.
TEST_P(Executed, EverySchemeSumsTensorsOfAnySize) {
  const Case one = GetParam();
  std::vector<Schedule> schedules, with_summation_node;
  for (const std::string& scheme : schedule::scheme_names()) {
    Schedule made = make(scheme, one.nodes);
    (made.nodes() == one.nodes ? schedules : with_summation_node).push_back(std::move(made));
  }
  Settings settings;
  settings.ring_bytes = 4 << 10;
  std::minstd_rand random(static_cast<unsigned>(one.nodes));
  for (const auto& all : {schedules, with_summation_node}) {
    LocalRanks ranks(all, one.link, settings, 50'000);
    for (std::size_t index = 0; index < all.size(); ++index) {
      const std::uint64_t most = test_all() ? 50'000 : 10'000;
      for (const std::uint64_t count :
           {std::uint64_t{1}, std::uint64_t{random() % 8}, std::uint64_t{random() % most}}) {
        run_and_expect_sums(ranks, index, count, index + 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Each rank fills its ring with one unit before any takes one: lanes that held the unit in one ring until the other
/// has room would wait for each other.
TEST_P(Executed, RingsThatAreFullOfOneUnitHoldUpNoLaneThatForwards) {
  const Case one = GetParam();
  Settings settings;
  settings.ring_bytes = 4 << 10;
  const std::uint64_t unit_floats = (settings.ring_bytes - 32) / sizeof(float);
  const Schedule schedule = make("ring:segmented", one.nodes);
  const std::uint64_t count = 2 * unit_floats * static_cast<std::uint64_t>(schedule.chunks);
  LocalRanks ranks({schedule}, one.link, settings, count);
  run_and_expect_sums(ranks, 0, count, 1);
}

TEST_P(Executed, TenMillionFloatsAreSummed) {
  const Case one = GetParam();
  if (!test_all() || one.nodes > 4) return;  // it takes seconds; more nodes run the same code and take more memory
  const std::vector<Schedule> schedules{make("ring", one.nodes), make("ring:segmented", one.nodes),
                                        make("tree:double-binary", one.nodes)};
  LocalRanks ranks(schedules, one.link, {}, 10'000'000);
  for (std::size_t index = 0; index < schedules.size(); ++index) {
    run_and_expect_sums(ranks, index, 10'000'000 - index, index);
    if (HasFatalFailure()) return;
  }
}

std::vector<Case> cases() {
  constexpr gpusock::LinkKind p2p = gpusock::LinkKind::p2p, tcp = gpusock::LinkKind::tcp;
  std::vector<Case> all{{p2p, 3}, {tcp, 3}};
  if (!schedule_test::kFew) all.insert(all.end(), {{tcp, 2}, {p2p, 5}});
  if (!test_all()) return all;
  all.clear();
  for (const int nodes : {2, 3, 4, 5, 8}) all.insert(all.end(), {{p2p, nodes}, {tcp, nodes}});
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& parameter) {
  return std::string(to_string(parameter.param.link)) + std::to_string(parameter.param.nodes);
}
INSTANTIATE_TEST_SUITE_P(, Executed, testing::ValuesIn(cases()), name_of);

/// What each rank has after one run.
std::vector<std::vector<float>> results_of(const Schedule& schedule, gpusock::LinkKind link, const Settings& settings,
                                           std::uint64_t count) {
  LocalRanks ranks({schedule}, link, settings, count);
  fill(ranks, count, 3);
  ranks.run(0, count, kTimeoutNs);
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < ranks.nodes(); ++rank) all.push_back(tensor_of(ranks, rank, count));
  return all;
}

TEST(Execution, GivesTheSameBitsOnAnyLinkRingUnitAndNumberOfThreads) {
  constexpr std::uint64_t kCount = 3001;
  for (const char* scheme : {"ring:segmented", "rhd", "tree:double-binary"}) {
    const Schedule schedule = make(scheme, 3);
    const auto wanted = results_of(schedule, gpusock::LinkKind::p2p, {}, kCount);
    EXPECT_EQ(wanted[0], wanted[1]) << scheme;
    EXPECT_EQ(wanted[0], wanted[2]) << scheme;
    Settings other;
    other.ring_bytes = 8 << 10;
    other.unit_bytes = 1004;
    other.threads = 3;
    EXPECT_EQ(results_of(schedule, gpusock::LinkKind::tcp, other, kCount), wanted) << scheme;
  }
}

/// Whatever the order in which data arrives: what comes too early waits in a reorder buffer, unit by unit.
TEST(Execution, AddsInTheOrderOfRanksWhereALaneHasAllTerms) {
  constexpr std::uint64_t kCount = 1001;
  constexpr int kNodes = 4;
  std::vector<float> wanted = input_of(0, kCount, 3);
  for (int rank = 1; rank < kNodes; ++rank) {
    const std::vector<float> input = input_of(rank, kCount, 3);
    for (std::uint64_t i = 0; i < kCount; ++i) wanted[i] += input[i];
  }
  for (const char* scheme : {"ps", "ps:even", "mesh"}) {
    Settings settings;
    EXPECT_NE(results_of(make(scheme, kNodes), gpusock::LinkKind::p2p, settings, kCount)[0], wanted) << scheme;
    settings.execution.rank_order = true;
    for (const std::uint64_t unit_bytes : {0, 100}) {
      settings.unit_bytes = unit_bytes;
      settings.threads = unit_bytes == 0 ? 1 : 3;
      const auto got = results_of(make(scheme, kNodes), gpusock::LinkKind::p2p, settings, kCount);
      for (int rank = 0; rank < kNodes; ++rank)
        EXPECT_EQ(got[static_cast<std::size_t>(rank)], wanted) << scheme << rank;
    }
    if (schedule::has_credits(scheme)) {
      EXPECT_EQ(results_of(make(scheme, kNodes, 0, 2), gpusock::LinkKind::tcp, settings, kCount)[0], wanted) << scheme;
    }
  }
}

TEST(Execution, RunsThatAreStartedTogetherEndInTheirOrder) {
  LocalRanks ranks({make("ring", 3), make("butterfly", 3)}, gpusock::LinkKind::p2p, {}, 900);
  fill(ranks, 900, 5);
  std::vector<std::uint64_t> first, last;
  for (int rank = 0; rank < 3; ++rank) {  // thirds of the tensors, in three runs
    float* data = ranks.tensor(rank).data();
    first.push_back(ranks.executor(rank).start(0, data, 300, kTimeoutNs));
    ranks.executor(rank).start(1, data + 300, 300, kTimeoutNs);
    last.push_back(ranks.executor(rank).start(0, data + 600, 300, kTimeoutNs));
  }
  for (int rank = 0; rank < 3; ++rank) {
    ranks.executor(rank).wait(first[static_cast<std::size_t>(rank)]);
    EXPECT_TRUE(ranks.executor(rank).done(first[static_cast<std::size_t>(rank)]));
    ranks.executor(rank).wait(last[static_cast<std::size_t>(rank)]);
  }
  expect_sums(ranks, ranks.executor(0).schedule(0), 900, 5);
}

TEST(Execution, TheOwnerAppliesTheOptimizer) {
  constexpr std::uint64_t kCount = 500;
  constexpr int kNodes = 3;
  LocalRanks ranks({make("ps", kNodes, 20)}, gpusock::LinkKind::p2p, {}, kCount);
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> memory;
  std::vector<executor::Optimizing> optimizing;
  for (int rank = 0; rank < kNodes; ++rank) {
    for (int i = 0; i < 2; ++i) {
      memory.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(ranks.context(rank), kCount));
    }
    optimizing.push_back(
        {Sgd{0.5f, 0.25f, 0.125f}, {memory[memory.size() - 2]->data(), kCount}, memory.back()->data()});
  }
  std::vector<double> weights(kCount), velocity(kCount);
  for (std::uint64_t step = 0; step < 3; ++step) {
    fill(ranks, kCount, step);
    std::vector<std::uint64_t> runs;
    for (int rank = 0; rank < kNodes; ++rank) {
      runs.push_back(ranks.executor(rank).start(0, ranks.tensor(rank).data(), kCount, kTimeoutNs,
                                                optimizing[static_cast<std::size_t>(rank)]));
    }
    for (int rank = 0; rank < kNodes; ++rank) ranks.executor(rank).wait(runs[static_cast<std::size_t>(rank)]);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int rank = 0; rank < kNodes; ++rank) sum += static_cast<double>(input_of(rank, kCount, step)[i]);
      velocity[i] = 0.25 * velocity[i] + sum * 0.125;
      weights[i] -= 0.5 * velocity[i];
    }
    for (int rank = 0; rank < kNodes; ++rank) {
      const std::vector<float> got = tensor_of(ranks, rank, kCount);
      for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_NEAR(got[i], weights[i], 1e-4) << "rank " << rank;
    }
  }
}

}  // namespace
