#include "commands/measure.hpp"

#include "commands/arguments.hpp"
#include "executor/local_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

namespace param_sync::commands {
namespace {

/// The first four are those in which all ranks send alike: they tell the prices apart, and the cost model is exact for
/// them. The others show how far it carries.
const char* const kMeasuredSchemes[] = {"mesh", "ring", "rhd", "butterfly", "ring:segmented", "tree:double-binary"};
constexpr std::size_t kFittedSchemes = 4;
constexpr std::uint64_t kMeasuredBytes[] = {1 << 10, 64 << 10, 512 << 10, 4 << 20};

double timed_run(executor::LocalRanks& ranks, std::size_t index, std::uint64_t floats) {
  const auto start = std::chrono::steady_clock::now();
  ranks.run(index, floats);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats) {
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  schedule::Request request;
  request.nodes = nodes;
  std::vector<schedule::Schedule> schedules;
  for (const char* scheme : kMeasuredSchemes) schedules.push_back(schedule::generate(scheme, request));
  const std::uint64_t floats_max = *std::max_element(std::begin(kMeasuredBytes), std::end(kMeasuredBytes)) / 4;
  executor::LocalRanks ranks(schedules, link, {}, floats_max);
  for (int rank = 0; rank < nodes; ++rank) ranks.tensor(rank).copy_in(std::vector<float>(floats_max));

  // All of them in turn, several times, so that other work on the machine disturbs all alike.
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<double>> times;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      for (const std::uint64_t bytes : kMeasuredBytes) {
        const double seconds = timed_run(ranks, i, bytes / sizeof(float));
        if (repeat >= 0) times[{i, bytes}].push_back(seconds);
      }
    }
  }
  std::vector<tune::Measurement> fitted, others;
  std::vector<double> scatters;
  for (auto& [which, seconds] : times) {
    const auto& [index, bytes] = which;
    const schedule::Schedule& made = schedules[index];
    std::sort(seconds.begin(), seconds.end());
    scatters.push_back(tune::scatter_of(seconds));
    (index < kFittedSchemes ? fitted : others)
        .push_back({made.scheme + ", " + in_units(bytes), tune::costs_of(made, schedule::check(made)),
                    static_cast<double>(bytes), seconds[seconds.size() / 2]});
  }
  std::sort(scatters.begin(), scatters.end());
  MeasuredLinks links;
  links.scatter = scatters[scatters.size() / 2];
  links.load = load;
  links.fit = tune::fit(fitted);
  links.fitted = tune::error_of(links.fit, fitted);
  links.others = tune::error_of(links.fit, others);
  for (const bool seen : {true, false}) {
    for (const tune::Measurement& one : seen ? fitted : others) {
      links.times.push_back({one.what, seen, links.fit.predicted_s(one.costs, one.bytes), one.seconds});
    }
  }
  return links;
}

}  // namespace param_sync::commands
