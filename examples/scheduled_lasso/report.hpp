#pragma once
/// @file What the scheduler has computed, as the program prints it.

#include "examples/scheduled_lasso/rounds.cuh"

#include "program/run.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace lasso {

/// What the scheduler has computed.
struct Outcome {
  std::vector<Round> rounds;
  std::vector<std::uint32_t> coordinates;
  std::vector<float> weights;
};

/// The largest |x_j . x_k| of two coordinates of a set.
inline float largest_dependence(const Problem& problem, const Outcome& found) {
  float largest = 0;
  for (std::size_t round = 1; round < found.rounds.size(); ++round) {
    for (std::uint64_t i = found.rounds[round - 1].updates; i < found.rounds[round].updates; ++i) {
      for (std::uint64_t k = found.rounds[round - 1].updates; k < i; ++k) {
        const float* const one = &problem.columns[std::size_t{found.coordinates[i]} * problem.samples];
        const float* const other = &problem.columns[std::size_t{found.coordinates[k]} * problem.samples];
        largest = std::max(largest, std::fabs(product_of(one, other, problem.samples)));
      }
    }
  }
  return largest;
}

/// All rounds. An objective that is not a number is null.
inline std::string json_of(const Outcome& found) {
  std::string objectives, updates;
  for (const Round& round : found.rounds) {
    const char* const comma = objectives.empty() ? "" : ",";
    char text[40] = "null";
    if (std::isfinite(round.objective)) std::snprintf(text, sizeof text, "%.9g", round.objective);
    objectives += comma + std::string(text);
    updates += comma + std::to_string(round.updates);
  }
  return "{\"objectives\": [" + objectives + "],\n\"updates\": [" + updates + "]}\n";
}

/// Prints some of the rounds, and what they have led to. Throws if the objective grows.
inline void report(const Problem& problem, const Outcome& found) {
  gpusock::program::print("   round   updates   objective\n");
  char text[200];
  const std::size_t last = found.rounds.size() - 1;
  for (std::size_t round = 0; round <= last; ++round) {
    if ((round & (round - 1)) != 0 && round != last) continue;  // after a power of two of them
    std::snprintf(text, sizeof text, "%8zu %9llu %11.6f\n", round,
                  static_cast<unsigned long long>(found.rounds[round].updates), found.rounds[round].objective);
    gpusock::program::print(text);
  }
  std::snprintf(text, sizeof text, "%.1f coordinates at a time; the largest |x_j . x_k| of two of them is %.3f\n",
                static_cast<double>(found.rounds[last].updates) / static_cast<double>(std::max<std::size_t>(1, last)),
                static_cast<double>(largest_dependence(problem, found)));
  gpusock::program::print(text);
  if (!(found.rounds[last].objective <= found.rounds[0].objective)) {
    throw std::runtime_error(
        "the objective grows: coordinates of a set depend on each other. Take --schedule strads, "
        "a smaller --dependence or a smaller --parallel");
  }
  int weights = 0, of_truth = 0, right = 0;
  for (std::size_t i = 0; i < problem.features; ++i) {
    weights += found.weights[i] != 0;
    of_truth += problem.truth[i] != 0;
    right += found.weights[i] != 0 && problem.truth[i] != 0;
  }
  std::snprintf(text, sizeof text, "%d weights are not 0; %d of the truth's %d are among them\n", weights, right,
                of_truth);
  gpusock::program::print(text);
}

}  // namespace lasso
