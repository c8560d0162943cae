#include "tests/simulation/shrink.hpp"

#include "tests/simulation/run.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <vector>

namespace gpusock::sim {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

std::vector<std::size_t> numbers_in(const std::string& text, std::size_t all) {
  std::vector<std::size_t> numbers;
  if (text == "none") return numbers;
  if (text.empty()) {
    for (std::size_t i = 0; i < all; ++i) numbers.push_back(i);
    return numbers;
  }
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) numbers.push_back(std::strtoul(part.c_str(), nullptr, 10));
  return numbers;
}

std::string to_text(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (const std::size_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return numbers.empty() ? "none" : text;
}

template <class Element>
std::vector<Element> keep(const std::vector<Element>& all, const std::string& which) {
  std::vector<Element> kept;
  for (const std::size_t number : numbers_in(which, all.size())) {
    if (number < all.size()) kept.push_back(all[number]);
  }
  return kept;
}

bool fails(std::uint64_t seed, const Cut& cut) { return !run(cut_down(make_plan(seed), cut)).problem.empty(); }

/// Leaves out one after the other, as long as it fails without.
bool drop_each(std::uint64_t seed, Cut& cut, std::string Cut::*which, std::size_t all, std::size_t least) {
  bool dropped = false;
  for (std::size_t i = 0; i < numbers_in(cut.*which, all).size();) {
    std::vector<std::size_t> numbers = numbers_in(cut.*which, all);
    if (numbers.size() <= least) break;
    numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(i));
    Cut smaller = cut;
    smaller.*which = to_text(numbers);
    if (fails(seed, smaller)) {
      cut = smaller;
      dropped = true;
    } else {
      ++i;
    }
  }
  return dropped;
}

}  // namespace

Plan cut_down(Plan plan, const Cut& cut) {
  plan.connections = keep(plan.connections, cut.connections);
  plan.faults = keep(plan.faults, cut.faults);
  for (PlannedConnection& connection : plan.connections) {
    for (PlannedWay& way : connection.ways) way.bytes = std::min(way.bytes, cut.bytes_max);
    // Where both readers send first, only a fault ends their standstill: without faults it would be a failure of the
    // plan's own.
    const bool stands_still = connection.ways[0].read_late && connection.ways[1].read_late;
    if (stands_still && !plan.faulty()) connection.ways[1].read_late = false;
  }
  return plan;
}

Cut shrink(std::uint64_t seed, Cut cut, const std::string&) {
  const Plan plan = make_plan(seed);
  for (bool smaller = true; smaller;) {
    smaller = drop_each(seed, cut, &Cut::connections, plan.connections.size(), 1);
    smaller |= drop_each(seed, cut, &Cut::faults, plan.faults.size(), 0);
  }
  std::uint64_t most = 0;
  for (const PlannedConnection& connection : cut_down(plan, cut).connections) {
    most = std::max({most, connection.ways[0].bytes, connection.ways[1].bytes});
  }
  for (std::uint64_t bytes = most / 2; bytes > 0; bytes /= 2) {
    Cut shorter = cut;
    shorter.bytes_max = bytes;
    if (!fails(seed, shorter)) break;
    cut = shorter;
  }
  return cut;
}

std::string to_arguments(const Cut& cut) {
  std::string text;
  if (!cut.connections.empty()) text += " --connections " + cut.connections;
  if (!cut.faults.empty()) text += " --faults " + cut.faults;
  if (cut.bytes_max != kAll) text += " --bytes-max " + std::to_string(cut.bytes_max);
  return text;
}

}  // namespace gpusock::sim
