#include "report/hold_up.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace param_sync {

HoldUp hold_up_of(std::span<const double> waited) {
  if (waited.size() < 2) return {};
  const auto least = std::ranges::min_element(waited);
  const double all = std::accumulate(waited.begin(), waited.end(), 0.0);
  const double of_others = (all - *least) / static_cast<double>(waited.size() - 1);
  return {static_cast<int>(least - waited.begin()), of_others - *least};
}

double share_of_steps(std::span<const HoldUp> steps, int rank) {
  if (steps.empty()) return 0;
  return static_cast<double>(std::ranges::count(steps, rank, &HoldUp::rank)) / static_cast<double>(steps.size());
}

void HoldUpNow::note(int rank, double waited_s, double train_s) {
  constexpr double kLeastS = 0.9;
  Rank& of = ranks_[rank];
  if (train_s < of.train_s) of = {};  // it has begun anew, with other nodes
  const double passed_s = train_s - of.train_s;
  if (passed_s >= kLeastS) of = {waited_s, train_s, (waited_s - of.waited_s) / passed_s};
}

HoldUp HoldUpNow::of(int nodes) const {
  std::vector<double> shares;
  for (const auto& [rank, of] : ranks_) {
    if (of.share >= 0 && rank < nodes) shares.push_back(of.share);
  }
  return shares.size() == static_cast<std::size_t>(nodes) ? hold_up_of(shares) : HoldUp{};
}

}  // namespace param_sync
