#include "param_sync/schedule/packing.hpp"

#include "param_sync/schedule/arborescence.hpp"
#include "param_sync/schedule/growing.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace param_sync::schedule {
namespace {

constexpr double kWantedShare = 0.995;  // of the bound
constexpr double kGoodShare = 0.99;
constexpr double kGrownShare = 0.992;
constexpr double kWorkMax = 1e8;  // multiplications; a step takes as many as the square of the number of arcs
constexpr double kStepsMax = 20000;
constexpr double kTiny = 1e-9;

/// The linear program: trees' bandwidths, their sum as large as possible, so that no arc carries more than it can.
/// There are too many trees to list; the simplex method asks for one that would help: the cheapest, where arcs cost
/// what their bandwidth is worth now. (Column generation.)
class Program {
 public:
  explicit Program(const Topology& topology);

  /// True if there was something to improve.
  bool improve();
  double sum() const;
  /// With many arcs a step takes long, and too many steps would be needed.
  int steps_max() const {
    const auto size = static_cast<double>(size_);
    return static_cast<int>(std::min(kStepsMax, kWorkMax / (size * size)));
  }
  std::vector<PackedTree> trees() const;

 private:
  struct Column {
    std::vector<int> arcs;  // of a tree; empty: what an arc has left
    int slack_of = kNobody;
  };
  void pivot(const Column& column);
  std::vector<double> direction(const Column& column) const;

  int nodes_;
  std::vector<Arc> arcs_;
  std::size_t size_ = 0;
  std::vector<std::vector<double>> inverse_;  // of the basis
  std::vector<Column> basis_;
  std::vector<double> values_;
};

Program::Program(const Topology& topology) : nodes_(topology.nodes()) {
  std::minstd_rand random;  // Capacities differ a little: equal ones would let the method go on for long without
                            // getting better.
  for (const Link& link : topology.links()) {
    for (const auto& [from, to] : {std::pair{link.a, link.b}, std::pair{link.b, link.a}}) {
      arcs_.push_back({from, to, 0});
      values_.push_back(link.bandwidth *
                        (1 - 1e-3 * static_cast<double>(random()) / static_cast<double>(random.max())));
    }
  }
  size_ = arcs_.size();
  inverse_.assign(size_, std::vector<double>(size_));
  for (std::size_t i = 0; i < size_; ++i) {
    inverse_[i][i] = 1;
    basis_.push_back({{}, static_cast<int>(i)});
  }
}

double Program::sum() const {
  double sum = 0;
  for (std::size_t i = 0; i < size_; ++i) sum += basis_[i].arcs.empty() ? 0 : values_[i];
  return sum;
}

std::vector<double> Program::direction(const Column& column) const {
  std::vector<double> result(size_);
  for (std::size_t row = 0; row < size_; ++row) {
    if (column.slack_of != kNobody) result[row] = inverse_[row][static_cast<std::size_t>(column.slack_of)];
    for (const int arc : column.arcs) result[row] += inverse_[row][static_cast<std::size_t>(arc)];
  }
  return result;
}

void Program::pivot(const Column& column) {
  const std::vector<double> change = direction(column);
  std::size_t leaves = size_;
  for (std::size_t row = 0; row < size_; ++row) {
    if (change[row] <= kTiny) continue;
    if (leaves == size_ || values_[row] * change[leaves] < values_[leaves] * change[row]) leaves = row;
  }
  if (leaves == size_) throw Error("packing trees: a tree without a limit");  // every tree uses arcs, which have one
  const double step = std::max(0.0, values_[leaves] / change[leaves]);
  for (double& entry : inverse_[leaves]) entry /= change[leaves];
  for (std::size_t row = 0; row < size_; ++row) {
    if (row == leaves || change[row] == 0) continue;
    values_[row] -= step * change[row];
    for (std::size_t i = 0; i < size_; ++i) inverse_[row][i] -= change[row] * inverse_[leaves][i];
  }
  values_[leaves] = step;
  basis_[leaves] = column;
}

bool Program::improve() {
  for (std::size_t arc = 0; arc < size_; ++arc) {
    arcs_[arc].cost = 0;
    for (std::size_t row = 0; row < size_; ++row) arcs_[arc].cost += basis_[row].arcs.empty() ? 0 : inverse_[row][arc];
  }
  const auto cheapest = std::min_element(arcs_.begin(), arcs_.end(),
                                         [](const Arc& a, const Arc& b) { return a.cost < b.cost; });
  if (cheapest->cost < -kTiny) {
    pivot({{}, static_cast<int>(cheapest - arcs_.begin())});
    return true;
  }
  Column tree{cheapest_tree(nodes_, 0, arcs_), kNobody};
  double cost = 0;
  for (const int arc : tree.arcs) cost += arcs_[static_cast<std::size_t>(arc)].cost;
  if (cost > 1 - kTiny) return false;
  pivot(tree);
  return true;
}

std::vector<PackedTree> Program::trees() const {
  std::vector<PackedTree> all;
  for (std::size_t row = 0; row < size_; ++row) {
    if (basis_[row].arcs.empty() || values_[row] <= kTiny) continue;
    PackedTree packed{Tree(static_cast<std::size_t>(nodes_), kNobody), values_[row]};
    for (const int index : basis_[row].arcs) {
      const Arc& arc = arcs_[static_cast<std::size_t>(index)];
      packed.tree[static_cast<std::size_t>(arc.to)] = arc.from;
    }
    all.push_back(std::move(packed));
  }
  return all;
}

}  // namespace

double bandwidth_of(const std::vector<PackedTree>& trees) {
  double sum = 0;
  for (const PackedTree& packed : trees) sum += packed.bandwidth;
  return sum;
}

std::vector<PackedTree> pack_trees(const Topology& topology) {
  if (topology.nodes() == 1) return {{Tree{kNobody}, 0}};
  const double bound = topology.min_cut();
  Program program(topology);
  for (int step = 0; step < program.steps_max() && program.sum() < kWantedShare * bound; ++step) {
    if (!program.improve()) break;
  }
  if (program.sum() >= kGoodShare * bound) return program.trees();
  const std::vector<PackedTree> grown = grow_trees(topology, kGrownShare);
  return bandwidth_of(grown) > program.sum() ? grown : program.trees();
}

}  // namespace param_sync::schedule
