#pragma once
// A random graph, and colours of its vertices.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace graphs {

/// A graph without directions. Vertex v's neighbours are neighbours[begin[v]] up to neighbours[begin[v + 1]], in
/// ascending order.
struct Graph {
  std::vector<std::uint32_t> begin, neighbours;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(begin.size() - 1); }
  std::uint32_t degree(std::uint32_t vertex) const { return begin[vertex + 1] - begin[vertex]; }
  /// The sum of the neighbours' values.
  double sum_beside(std::uint32_t vertex, const std::vector<float>& values) const {
    double sum = 0;
    for (std::uint32_t i = begin[vertex]; i < begin[vertex + 1]; ++i) sum += double{values[neighbours[i]]};
    return sum;
  }
};

/// Returns a graph that is a circle of all vertices and, for each vertex, so many edges to random other ones.
inline Graph random_graph(std::uint32_t vertices, std::uint32_t edges_each, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::set<std::uint32_t>> adjacent(vertices);
  const auto join = [&](std::uint32_t one, std::uint32_t other) {
    if (one == other) return;
    adjacent[one].insert(other);
    adjacent[other].insert(one);
  };
  for (std::uint32_t vertex = 0; vertex < vertices; ++vertex) {
    join(vertex, (vertex + 1) % vertices);
    for (std::uint32_t i = 0; i < edges_each; ++i) join(vertex, static_cast<std::uint32_t>(random() % vertices));
  }
  Graph graph{{0}, {}};
  for (const auto& of_vertex : adjacent) {
    graph.neighbours.insert(graph.neighbours.end(), of_vertex.begin(), of_vertex.end());
    graph.begin.push_back(static_cast<std::uint32_t>(graph.neighbours.size()));
  }
  return graph;
}

/// Vertices by colour: those of colour c are order[begin[c]] up to order[begin[c + 1]].
struct Colours {
  std::vector<std::uint32_t> order, begin;

  std::uint32_t count() const { return static_cast<std::uint32_t>(begin.size() - 1); }
};

/// Colours vertices one after the other, each with the first colour that no vertex within `distance` has: neighbours
/// (1), or also their neighbours (2). With 0 all have the same colour.
inline Colours greedy_colours(const Graph& graph, int distance) {
  constexpr std::uint32_t kNone = ~0u;
  std::vector<std::uint32_t> of(graph.vertices(), kNone);
  std::vector<std::uint32_t> taken(graph.vertices() + std::size_t{1}, kNone);  // by colour: the last vertex near it
  std::uint32_t count = 0;
  const auto take = [&](std::uint32_t colour, std::uint32_t vertex) {
    if (colour != kNone) taken[colour] = vertex;
  };
  const auto for_neighbours = [&](std::uint32_t vertex, auto call) {
    for (std::uint32_t i = graph.begin[vertex]; i < graph.begin[vertex + 1]; ++i) call(graph.neighbours[i]);
  };
  for (std::uint32_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    if (distance != 0) {
      for_neighbours(vertex, [&](std::uint32_t near) {
        take(of[near], vertex);
        if (distance == 2) for_neighbours(near, [&](std::uint32_t next) { take(of[next], vertex); });
      });
    }
    std::uint32_t colour = 0;
    while (taken[colour] == vertex) ++colour;
    of[vertex] = colour;
    count = std::max(count, colour + 1);
  }
  Colours colours;
  for (std::uint32_t colour = 0; colour < count; ++colour) {
    colours.begin.push_back(static_cast<std::uint32_t>(colours.order.size()));
    for (std::uint32_t vertex = 0; vertex < graph.vertices(); ++vertex) {
      if (of[vertex] == colour) colours.order.push_back(vertex);
    }
  }
  colours.begin.push_back(graph.vertices());
  return colours;
}

}  // namespace graphs
