#include "tune/chooser.hpp"

#include "param_sync/schedule/schemes.hpp"
#include "simulate/simulation.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace param_sync::tune {

schedule::Schedule schedule_of(const Candidate& candidate, int nodes) {
  schedule::Request request;
  request.nodes = nodes;
  request.chunks = candidate.chunks;
  return schedule::generate(candidate.scheme, request);
}

double simulated_s(const Candidate& candidate, int nodes, double bytes, const cost::NetworkModel& model) {
  const schedule::Schedule made = schedule_of(candidate, nodes);
  return simulate::simulate(made, bytes / made.chunks, model).end_s;
}

Chooser::Chooser(int nodes) : nodes_(nodes) {
  schedule::Request request;
  request.nodes = nodes;
  for (const std::string& scheme : schedule::scheme_names()) {
    if (!schedule::moves(scheme, schedule::Moves::sums)) continue;  // parameter servers must be asked for by name
    if (schedule::uses(scheme, schedule::Setting::topology)) continue;
    if (schedule::uses(scheme, schedule::Setting::summation_nodes)) continue;
    for (const int count : schedule::chunks_to_try(scheme, request)) {
      const Candidate candidate{scheme, count};
      const schedule::Schedule made = schedule_of(candidate, nodes);
      candidates_.push_back({candidate, cost::costs_of(made, check(made))});
    }
  }
}

Candidate Chooser::choose(double bytes, const cost::NetworkModel& model) const {
  constexpr std::size_t kShortlistMax = 8;
  constexpr double kWorthTrying = 1.5;
  std::vector<std::pair<double, const Candidate*>> prices;
  for (const Priced& priced : candidates_) {
    prices.emplace_back(cost::predicted_s(priced.costs, bytes, model), &priced.candidate);
  }
  std::stable_sort(prices.begin(), prices.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const Candidate* best = prices.front().second;
  double best_s = simulated_s(*best, nodes_, bytes, model);
  for (std::size_t i = 1; i < std::min(prices.size(), kShortlistMax); ++i) {
    if (prices[i].first > kWorthTrying * prices.front().first) break;
    const double time_s = simulated_s(*prices[i].second, nodes_, bytes, model);
    if (time_s >= best_s) continue;
    best = prices[i].second;
    best_s = time_s;
  }
  return *best;
}

Candidate Chooser::best(double bytes, const cost::NetworkModel& model) const {
  const Candidate* fastest = nullptr;
  double least_s = std::numeric_limits<double>::infinity();
  for (const Priced& priced : candidates_) {
    const double time_s = simulated_s(priced.candidate, nodes_, bytes, model);
    if (time_s >= least_s) continue;
    fastest = &priced.candidate;
    least_s = time_s;
  }
  return *fastest;
}

}  // namespace param_sync::tune
