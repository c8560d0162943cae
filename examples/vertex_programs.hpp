#pragma once
// Programs of vertices, the problems that they solve, and how good a solution is.
#include "examples/graph.hpp"

#include "gpusock/types.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace graphs {

/// A graph, and what programs need of it. By value; kernels have pointers to device memory.
struct View {
  std::uint32_t vertices = 0;
  const std::uint32_t *begin = nullptr, *neighbours = nullptr;
  const float* of_vertex = nullptr;  ///< kaczmarz: the right side; gibbs: by sum of neighbours, how probable +1 is
  std::uint32_t degree_max = 0;
  std::uint64_t seed = 0;

  GPUSOCK_FN std::uint32_t degree(std::uint32_t vertex) const { return begin[vertex + 1] - begin[vertex]; }
  /// Calls call(neighbour) for each one, in ascending order.
  template <class Call>
  GPUSOCK_FN void for_neighbours(std::uint32_t vertex, Call call) const {
    for (std::uint32_t i = begin[vertex]; i < begin[vertex + 1]; ++i) call(neighbours[i]);
  }
};

// A program has update(graph, sweep, vertex, values), where values.read(v) is the value of a vertex, and
// values.write(v, value) sets it. Multiplications are added by fmaf, so that all devices round alike.

/// The importance of pages (Brin and Page, 1998). It reads neighbours, and writes the vertex: edge consistency.
struct PageRank {
  static constexpr bool kWritesNeighbours = false;
  template <class Values>
  GPUSOCK_FN void update(const View& graph, std::uint32_t, std::uint32_t vertex, Values& values) const {
    float sum = 0;
    graph.for_neighbours(vertex, [&](std::uint32_t v) { sum += values.read(v) / static_cast<float>(graph.degree(v)); });
    values.write(vertex, fmaf(0.85f, sum, 0.15f / static_cast<float>(graph.vertices)));
  }
};

/// Gibbs sampling of an Ising model whose neighbours are rather unlike: a vertex is +1 or -1, at random, by what its
/// neighbours are. Edge consistency: if all vertices were drawn at once, they would all be alike.
struct Gibbs {
  static constexpr bool kWritesNeighbours = false;
  template <class Values>
  GPUSOCK_FN void update(const View& graph, std::uint32_t sweep, std::uint32_t vertex, Values& values) const {
    float sum = 0;
    graph.for_neighbours(vertex, [&](std::uint32_t v) { sum += values.read(v); });
    std::uint64_t mixed = graph.seed + 0x9e3779b97f4a7c15 * (std::uint64_t{sweep} * graph.vertices + vertex + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;  // SplitMix64 (Steele et al., 2014)
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    const float uniform = static_cast<float>((mixed ^ (mixed >> 31)) >> 40) * 0x1p-24f;
    const auto index = static_cast<std::int32_t>(sum) + static_cast<std::int32_t>(graph.degree_max);
    values.write(vertex, uniform < graph.of_vertex[index] ? 1.0f : -1.0f);
  }
};

/// Solves (1 + 2 degree) x_v - (sum of neighbours' x) = b_v for all v, by projections (Kaczmarz, 1937): an update moves
/// the vertex and its neighbours so that its own equation holds. Full consistency.
struct Kaczmarz {
  static constexpr bool kWritesNeighbours = true;
  template <class Values>
  GPUSOCK_FN void update(const View& graph, std::uint32_t, std::uint32_t vertex, Values& values) const {
    const auto degree = static_cast<float>(graph.degree(vertex));
    const float own = 1 + 2 * degree;  // what the vertex's value is multiplied by
    float missing = fmaf(-own, values.read(vertex), graph.of_vertex[vertex]);
    graph.for_neighbours(vertex, [&](std::uint32_t v) { missing += values.read(v); });
    const float step = missing / fmaf(own, own, degree);
    values.write(vertex, fmaf(own, step, values.read(vertex)));
    graph.for_neighbours(vertex, [&](std::uint32_t v) { values.write(v, values.read(v) - step); });
  }
};

/// Calls call(v) for each vertex that an update of a vertex writes.
template <class Program, class Call>
GPUSOCK_FN void for_written(const View& graph, std::uint32_t vertex, Call call) {
  call(vertex);
  if (Program::kWritesNeighbours) graph.for_neighbours(vertex, call);
}

/// A graph with its colours, and the values that the program begins with.
struct Problem {
  /// `consistency`: "vertex", "edge", "full", or "" for what the program needs.
  Problem(const std::string& program, const std::string& consistency, const Graph& of, std::uint64_t seed)
      : graph(of),
        state(of.vertices(), program == "pagerank" ? 1.0f / static_cast<float>(of.vertices()) : 0.0f),
        random_seed(seed) {
    const std::string wanted = !consistency.empty() ? consistency : program == "kaczmarz" ? "full" : "edge";
    colours = greedy_colours(graph, wanted == "vertex" ? 0 : wanted == "edge" ? 1 : 2);
    for (std::uint32_t v = 0; v < graph.vertices(); ++v) degree_max = std::max(degree_max, graph.degree(v));
    std::mt19937_64 random(seed + 1);
    if (program == "gibbs") {
      for (float& spin : state) spin = random() % 2 == 0 ? 1.0f : -1.0f;
      for (int sum = -static_cast<int>(degree_max); sum <= static_cast<int>(degree_max); ++sum) {
        of_vertex.push_back(static_cast<float>(1 / (1 + std::exp(2.0 * sum))));
      }
    } else {
      for (std::uint32_t v = 0; v < graph.vertices(); ++v) of_vertex.push_back(static_cast<float>(random() % 100));
    }
  }

  /// For the host.
  View view() const {
    return {graph.vertices(), graph.begin.data(), graph.neighbours.data(), of_vertex.data(), degree_max, random_seed};
  }

  Graph graph;
  Colours colours;
  std::vector<float> of_vertex, state;
  std::uint64_t random_seed = 0;
  std::uint32_t degree_max = 0;
};

/// Values that an update changes in place.
struct InPlace {
  float* state;
  GPUSOCK_FN float read(std::uint32_t vertex) const { return state[vertex]; }
  GPUSOCK_FN void write(std::uint32_t vertex, float value) const { state[vertex] = value; }
};

/// One update after the other, in the order of colours.
template <class Program>
std::vector<float> serially(const Problem& problem, std::uint32_t sweeps, const Program& program) {
  const View graph = problem.view();
  std::vector<float> state = problem.state;
  const InPlace values{state.data()};
  for (std::uint32_t sweep = 0; sweep < sweeps; ++sweep) {
    for (const std::uint32_t vertex : problem.colours.order) program.update(graph, sweep, vertex, values);
  }
  return state;
}

/// What updates would change.
struct Difference {
  const float* state;
  double most = 0;
  GPUSOCK_FN float read(std::uint32_t vertex) const { return state[vertex]; }
  GPUSOCK_FN void write(std::uint32_t vertex, float value) {
    const double difference = double{value} - double{state[vertex]};
    most = fmax(most, fabs(difference));
  }
};

/// By how much a page's rank differs at most from what its neighbours give it, in ranks of a mean page.
inline double error_of(const PageRank& program, const Problem& problem, const std::vector<float>& state) {
  const View graph = problem.view();
  Difference values{state.data()};
  for (std::uint32_t vertex = 0; vertex < graph.vertices; ++vertex) program.update(graph, 0, vertex, values);
  return values.most * graph.vertices;
}

/// The mean product of neighbours: -1 if all are unlike, 1 if all are alike.
inline double error_of(const Gibbs&, const Problem& problem, const std::vector<float>& state) {
  double sum = 0;
  for (std::uint32_t vertex = 0; vertex < problem.graph.vertices(); ++vertex) {
    sum += double{state[vertex]} * problem.graph.sum_beside(vertex, state);
  }
  return sum / static_cast<double>(problem.graph.neighbours.size());
}

/// The norm of what is missing in all equations, divided by that of the right sides.
inline double error_of(const Kaczmarz&, const Problem& problem, const std::vector<float>& state) {
  double missing = 0, all = 0;
  for (std::uint32_t vertex = 0; vertex < problem.graph.vertices(); ++vertex) {
    const double right = problem.of_vertex[vertex], own = 1.0 + 2.0 * problem.graph.degree(vertex);
    missing += std::pow(right - own * double{state[vertex]} + problem.graph.sum_beside(vertex, state), 2);
    all += right * right;
  }
  return std::sqrt(missing / all);
}

}  // namespace graphs
