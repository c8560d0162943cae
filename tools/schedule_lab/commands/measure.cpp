#include "commands/measure.hpp"

#include "commands/arguments.hpp"
#include "trial/local_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

namespace param_sync::commands {
namespace {

/// In the first four schemes all ranks send alike. They tell the prices apart, and the cost model is exact for them.
/// The other schemes show how well the fit predicts what it has not seen.
const char* const kMeasuredSchemes[] = {"mesh", "ring", "rhd", "butterfly", "ring:segmented", "tree:double-binary"};
constexpr std::size_t kFittedSchemes = 4;
constexpr std::uint64_t kMeasuredBytes[] = {1 << 10, 64 << 10, 512 << 10, 4 << 20};

double timed_run(executor::LocalRanks& ranks, std::size_t index, std::uint64_t floats) {
  const auto start = std::chrono::steady_clock::now();
  ranks.run(index, floats);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Times schedules on running links, any number of times.
class TimedSchedules {
 public:
  TimedSchedules(int nodes, gpusock::LinkKind link)
      : schedules_(schedules_for(nodes)), ranks_(schedules_, link, {}, kFloatsMax) {
    for (int rank = 0; rank < nodes; ++rank) ranks_.tensor(rank).copy_in(std::vector<float>(kFloatsMax));
  }

  /// Times all schedules in turn, several times, so that other work on the machine disturbs all of them alike.
  tune::Round time(int repeats) {
    std::map<std::pair<std::size_t, std::uint64_t>, std::vector<double>> times;
    for (int repeat = -1; repeat < repeats; ++repeat) {
      for (std::size_t i = 0; i < schedules_.size(); ++i) {
        for (const std::uint64_t bytes : kMeasuredBytes) {
          const double seconds = timed_run(ranks_, i, bytes / sizeof(float));
          if (repeat >= 0) times[{i, bytes}].push_back(seconds);
        }
      }
    }
    tune::Round round;
    std::vector<double> scatters;
    for (auto& [which, seconds] : times) {
      const auto& [index, bytes] = which;
      const schedule::Schedule& made = schedules_[index];
      std::sort(seconds.begin(), seconds.end());
      scatters.push_back(tune::scatter_of(seconds));
      (index < kFittedSchemes ? round.fitted : round.others)
          .push_back({made.scheme + ", " + in_units(bytes), cost::costs_of(made, schedule::check(made)),
                      static_cast<double>(bytes), seconds[seconds.size() / 2]});
    }
    std::sort(scatters.begin(), scatters.end());
    round.scatter = scatters[scatters.size() / 2];
    return round;
  }

 private:
  static constexpr std::uint64_t kFloatsMax = *std::max_element(std::begin(kMeasuredBytes), std::end(kMeasuredBytes)) /
                                              sizeof(float);

  static std::vector<schedule::Schedule> schedules_for(int nodes) {
    schedule::Request request;
    request.nodes = nodes;
    std::vector<schedule::Schedule> all;
    for (const char* scheme : kMeasuredSchemes) all.push_back(schedule::generate(scheme, request));
    return all;
  }

  std::vector<schedule::Schedule> schedules_;
  executor::LocalRanks ranks_;
};

MeasuredLinks links_of(const tune::Round& round) {
  MeasuredLinks links;
  links.scatter = round.scatter;
  links.fit = tune::fit(round.fitted);
  links.fitted = tune::error_of(links.fit, round.fitted);
  links.others = tune::error_of(links.fit, round.others);
  for (const bool seen : {true, false}) {
    for (const tune::Measurement& one : seen ? round.fitted : round.others) {
      links.times.push_back({one.what, seen, links.fit.predicted_s(one.costs, one.bytes), one.seconds});
    }
  }
  return links;
}

}  // namespace

MeasuredLinks measure_links(int nodes, gpusock::LinkKind link, int repeats) {
  return links_of(TimedSchedules(nodes, link).time(repeats));
}

CheckedLinks measure_links_again(int nodes, gpusock::LinkKind link, int repeats, std::chrono::seconds patience) {
  CheckedLinks checked;
  if (getloadavg(&checked.load, 1) != 1) checked.load = 0;
  TimedSchedules timed(nodes, link);
  const auto until = std::chrono::steady_clock::now() + patience;
  checked.settled = tune::settle([&] { return timed.time(repeats); },
                                 [until] { return std::chrono::steady_clock::now() < until; });
  checked.links = links_of(checked.settled.round);
  checked.regrets = tune::regrets_of(checked.links.fit, all_of(checked.settled.later));
  return checked;
}

}  // namespace param_sync::commands
