// The cost model agrees with virtual time, prices are found again from times, and the chooser finds what is best.
#include "network.hpp"
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "simulate/simulation.hpp"
#include "tune/chooser.hpp"
#include "param_sync/cost/cost_model.hpp"
#include "tune/fit.hpp"
#include "tune/open_mpi.hpp"
#include "tune/rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace param_sync::schedule;
using param_sync::simulate::simulate;
using namespace param_sync::cost;
using namespace param_sync::tune;
using schedule_test::network;

TEST(CostModel, IsExactWhereAllSendAlike) {
  const NetworkModel model = network();
  for (const int nodes : {2, 4, 8, 16}) {
    for (const char* scheme : {"mesh", "ring", "rhd", "butterfly"}) {
      const Candidate candidate{scheme, scheme == std::string("butterfly") ? 1 : nodes};
      const Schedule schedule = schedule_of(candidate, nodes);
      const double predicted = predicted_s(costs_of(schedule, check(schedule)), 1e6, model);
      const double simulated_s = simulate(schedule, 1e6 / schedule.chunks, model).end_s;
      if (scheme != std::string("rhd")) {
        EXPECT_NEAR(predicted, simulated_s, 1e-9 * simulated_s) << scheme;
      } else {
        EXPECT_NEAR(predicted, simulated_s, 1e-6 * simulated_s) << nodes;
      }
    }
  }
}

TEST(CostModel, IsAtMostAThirdWrong) {
  double worst = 0;
  std::string which;
  for (const int nodes : {3, 8}) {
    const Chooser chooser(nodes);
    for (const auto& priced : chooser.candidates()) {
      for (const double bytes : {1e3, 1e6, 1e8}) {
        const double simulated_time = simulated_s(priced.candidate, nodes, bytes, network());
        const double error = std::abs(predicted_s(priced.costs, bytes, network()) / simulated_time - 1);
        if (error <= worst) continue;
        worst = error;
        which = priced.candidate.scheme + ", " + std::to_string(nodes) + " nodes, " + std::to_string(bytes) + " bytes";
      }
    }
  }
  EXPECT_LE(worst, 0.34) << which;
  std::cout << "cost model: at worst " << 100 * worst << " % wrong: " << which << "\n";
}

/// Times of these schemes in virtual time, each run `start_s` longer.
std::vector<Measurement> virtual_measurements(const std::vector<std::string>& schemes, int nodes,
                                              const NetworkModel& model, double start_s) {
  std::vector<Measurement> all;
  for (const std::string& scheme : schemes) {
    Request request;
    request.nodes = nodes;
    const Schedule schedule = generate(scheme, request);
    const Costs costs = costs_of(schedule, check(schedule));
    for (const double bytes : {1e3, 64e3, 512e3, 4e6}) {
      const double seconds = simulate(schedule, bytes / schedule.chunks, model).end_s;
      all.push_back({scheme, costs, bytes, seconds + start_s});
    }
  }
  return all;
}

TEST(Fit, FindsThePricesOfALink) {
  for (const int nodes : {4, 8}) {
    const NetworkModel model = network();
    const auto measured = virtual_measurements({"mesh", "ring", "rhd", "butterfly"}, nodes, model, 300e-6);
    const Fit found = fit(measured);
    EXPECT_NEAR(found.start_s, 300e-6, 1e-6 * 300e-6);
    EXPECT_NEAR(found.network.latency_s, model.latency_s, 1e-5 * model.latency_s);
    EXPECT_NEAR(found.network.overhead_s, model.overhead_s, 1e-5 * model.overhead_s);
    EXPECT_NEAR(found.network.bandwidth, model.bandwidth, 1e-6 * model.bandwidth);
    EXPECT_NEAR(found.network.reduce_bandwidth, model.reduce_bandwidth, 1e-6 * model.reduce_bandwidth);
    EXPECT_LT(error_of(found, measured).worst, 1e-6);
  }
}

TEST(Fit, WhatCannotBeToldApartIsFittedTogether) {
  NetworkModel model = network();
  const auto measured = virtual_measurements({"mesh", "ring", "rhd", "butterfly"}, 2, model, 0);
  const Fit found = fit(measured);
  EXPECT_LT(error_of(found, measured).worst, 1e-6);  // the sum of start, latency and overhead is right
}

TEST(Fit, StandsNoiseAndSaysHowMuch) {
  const NetworkModel model = network();
  auto measured = virtual_measurements({"mesh", "ring", "rhd", "butterfly"}, 4, model, 300e-6);
  std::minstd_rand random(1);
  for (Measurement& one : measured) one.seconds *= 0.9 + 0.2 * static_cast<double>(random() % 1001) / 1000;
  const Fit found = fit(measured);
  const FitError error = error_of(found, measured);
  EXPECT_GT(error.mean, 0.01);
  EXPECT_LE(error.mean, 0.1);
  EXPECT_LE(error.worst, 0.2);
  EXPECT_NEAR(found.network.bandwidth, model.bandwidth, 0.2 * model.bandwidth);
  EXPECT_LE(error_of(found, virtual_measurements({"tree:double-binary", "ring:segmented"}, 4, model, 300e-6)).worst,
            0.5);
}

TEST(Fit, PricesAreNotNegative) {
  std::vector<Measurement> measured = virtual_measurements({"mesh", "ring", "rhd", "butterfly"}, 4, network(), 0);
  for (Measurement& one : measured) one.seconds = 1e-3;  // whatever is sent
  const Fit found = fit(measured);
  EXPECT_NEAR(found.start_s, 1e-3, 1e-9);
  EXPECT_GE(found.network.latency_s, 0);
  EXPECT_GT(found.network.bandwidth, 1e15);
  EXPECT_GT(found.network.reduce_bandwidth, 1e15);
}

/// What the fit takes is the cheapest by its prices; what it loses is said by other times than those that it has seen.
TEST(Fit, RegretIsThatOfTheChoiceByLaterMeasurements) {
  Costs few, many;
  few.depth = 1;
  many.depth = 2;
  Fit fit;
  fit.network.latency_s = 1;
  const std::vector<Measurement> later{
      {"few, 8", few, 8, 3.0}, {"many, 8", many, 8, 2.0}, {"few, 4", few, 4, 1.0}, {"many, 4", many, 4, 2.0}};
  const std::vector<Regret> regrets = regrets_of(fit, later);
  ASSERT_EQ(regrets.size(), 2U);
  EXPECT_EQ(regrets[0].taken, "few, 4");
  EXPECT_EQ(regrets[0].best, "few, 4");
  EXPECT_EQ(regrets[0].share, 0);
  EXPECT_EQ(regrets[1].taken, "few, 8");
  EXPECT_EQ(regrets[1].best, "many, 8");
  EXPECT_EQ(regrets[1].share, 0.5);
}

TEST(Fit, DriftIsThatOfMediansOfEqualRuns) {
  const auto round = [](std::vector<double> seconds) {
    std::vector<Measurement> all;
    for (const double one : seconds) all.push_back({"", {}, 1, one});
    return all;
  };
  EXPECT_EQ(drift_of(round({1, 2, 4}), round({1, 2, 4})), 0);
  EXPECT_EQ(drift_of(round({1, 2, 4}), round({1.5, 1, 4})), 0.5) << "0.5, 0.5 and 0: either way";
  EXPECT_EQ(drift_of(round({1, 1, 1}), round({1, 1, 100})), 0) << "one that was disturbed";
}

/// Rounds of one measurement, with this median and scatter, one after the other; the last one again and again.
std::function<Round()> rounds_of(std::vector<std::pair<double, double>> rounds) {
  return [rounds, next = std::size_t{0}]() mutable {
    const auto [seconds, scatter] = rounds[std::min(next++, rounds.size() - 1)];
    return Round{{{"ring, 8", {}, 8, seconds}}, {}, scatter};
  };
}
bool always() { return true; }
bool never() { return false; }

TEST(Rounds, AreTwoWhereTheMachineIsSteady) {
  const Settled settled = settle(rounds_of({{1, 0.1}, {1.1, 0.2}}), always);
  EXPECT_TRUE(settled.is_steady());
  EXPECT_EQ(settled.rounds, 2);
  EXPECT_EQ(settled.round.fitted[0].seconds, 1);
  EXPECT_EQ(settled.later.fitted[0].seconds, 1.1);
  EXPECT_EQ(unsteadiness_of(settled), "");
}

TEST(Rounds, AreRepeatedUntilMediansAgree) {
  const Settled settled = settle(rounds_of({{1, 0}, {2, 0}, {4, 0}, {4.2, 0}}), always);
  EXPECT_TRUE(settled.is_steady());
  EXPECT_EQ(settled.rounds, 4);
  EXPECT_EQ(settled.round.fitted[0].seconds, 4);
}

TEST(Rounds, AreRepeatedUntilEqualRunsTakeAsLong) {
  const Settled settled = settle(rounds_of({{1, 0.5}, {1, 0.1}, {1, 0.1}}), always);
  EXPECT_TRUE(settled.is_steady());
  EXPECT_EQ(settled.rounds, 3) << "both rounds are steady";
}

TEST(Rounds, EndAndSayWhatIsUnsteadyWhereThereIsNoMoreTime) {
  const Settled drifting = settle(rounds_of({{1, 0}, {2, 0}}), never);
  EXPECT_FALSE(drifting.is_steady());
  EXPECT_EQ(drifting.rounds, 2);
  EXPECT_EQ(unsteadiness_of(drifting), "medians of the last two of 2 rounds differ by 100 %, where 15 % are steady");

  int left = 5;
  const Settled scattered = settle(rounds_of({{1, 0.7}}), [&left] { return --left > 0; });
  EXPECT_FALSE(scattered.is_steady());
  EXPECT_EQ(scattered.rounds, 6);
  EXPECT_EQ(unsteadiness_of(scattered), "times of equal runs differ by 70 %, where 30 % are steady");
}

TEST(Fit, ScatterIsThatOfTheMiddleHalf) {
  EXPECT_EQ(scatter_of({5}), 0);
  EXPECT_EQ(scatter_of({2, 2, 2, 2, 100}), 0);
  EXPECT_EQ(scatter_of({1, 2, 4, 8, 16}), 1.5);
}

TEST(Fit, RefusesTooFewAndImpossibleTimes) {
  auto measured = virtual_measurements({"mesh"}, 4, network(), 0);
  EXPECT_THROW(fit(measured), Error);  // four
  measured = virtual_measurements({"mesh", "ring"}, 4, network(), 0);
  measured[3].seconds = 0;
  EXPECT_THROW(fit(measured), Error);
}

/// The worst regrets, as shares of the best time.
struct Regret {
  double ours = 0;
  double open_mpi = 0;
};

Regret regret_of(int nodes, const std::vector<NetworkModel>& models, const std::vector<double>& sizes) {
  Regret worst;
  const Chooser chooser(nodes);
  for (const NetworkModel& model : models) {
    for (const double bytes : sizes) {
      const Candidate fastest = chooser.best(bytes, model), chosen = chooser.choose(bytes, model);
      const double best_s = simulated_s(fastest, nodes, bytes, model);
      const double regret = simulated_s(chosen, nodes, bytes, model) / best_s - 1;
      EXPECT_LE(regret, 0.05) << nodes << " nodes, " << bytes << " bytes, " << model.bandwidth
                              << " bytes/s: " << chosen.scheme << ", best: " << fastest.scheme;
      worst.ours = std::max(worst.ours, regret);
      const Candidate rule = open_mpi_choice(nodes, bytes);
      worst.open_mpi = std::max(worst.open_mpi, simulated_s(rule, nodes, bytes, model) / best_s - 1);
    }
  }
  return worst;
}

TEST(Chooser, LosesAtMostOneTwentiethToExhaustiveSearch) {
  NetworkModel slow = network(), fast = network();
  slow.bandwidth = 0.125e9;
  fast.bandwidth = 12.5e9;
  fast.latency_s = 5e-6;
  fast.overhead_s = 0.5e-6;
  Regret worst;
  for (const int nodes : {2, 3, 4, 5, 7, 8, 12, 16}) {
    if (schedule_test::kFew && nodes > 3) break;
    const bool all = nodes < 16;
    const Regret found = regret_of(nodes, all ? std::vector{slow, network(), fast} : std::vector{fast},
                                   all ? std::vector{1e3, 3e4, 1e6, 1e8} : std::vector{1e3, 1e6});
    worst = {std::max(worst.ours, found.ours), std::max(worst.open_mpi, found.open_mpi)};
  }
  EXPECT_GT(worst.open_mpi, worst.ours);
  std::cout << "worst regret " << 100 * worst.ours << " %, of Open MPI's rules " << 100 * worst.open_mpi << " %\n";
}

TEST(Chooser, KnowsAllReducesOnly) {
  for (const int nodes : {2, 5}) {
    const Chooser chooser(nodes);
    for (const auto& priced : chooser.candidates()) {
      EXPECT_EQ(schedule_of(priced.candidate, nodes).result, Result::all_reduce) << priced.candidate.scheme;
    }
  }
}

TEST(Chooser, OpenMpisRules) {
  EXPECT_EQ(open_mpi_choice(2, 4), (Candidate{"ring", 2}));
  EXPECT_EQ(open_mpi_choice(3, 4095), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(3, 4096), (Candidate{"ring", 3}));
  EXPECT_EQ(open_mpi_choice(3, 8192), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(3, 262143), (Candidate{"ring", 3}));
  EXPECT_EQ(open_mpi_choice(3, 262144), (Candidate{"rhd", 3}));
  EXPECT_EQ(open_mpi_choice(4, 15), (Candidate{"ring", 4}));
  EXPECT_EQ(open_mpi_choice(7, 8191), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(8, 1), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(15, 8192), (Candidate{"rhd", 15}));
  EXPECT_EQ(open_mpi_choice(16, 63), (Candidate{"ring", 16}));
  EXPECT_EQ(open_mpi_choice(32, 128), (Candidate{"rhd", 32}));
  EXPECT_EQ(open_mpi_choice(64, 262143), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(128, 131071), (Candidate{"tree:binary", 1}));
  EXPECT_EQ(open_mpi_choice(256, 4096), (Candidate{"rhd", 256}));
  EXPECT_EQ(open_mpi_choice(1024, 2048), (Candidate{"butterfly", 1}));
  EXPECT_EQ(open_mpi_choice(1024, 1e9), (Candidate{"rhd", 1024}));
}

}  // namespace
