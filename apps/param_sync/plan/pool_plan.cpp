#include "plan/pool_plan.hpp"

#include "gpusock/error.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace param_sync {
namespace {

constexpr int kAheadWanted = 2;             // see PoolPlan::make()
constexpr std::uint32_t kFloatsOfWord = 4;  // stays begin at words of 16 bytes

std::uint32_t in_words(std::uint32_t floats) { return (floats + kFloatsOfWord - 1) / kFloatsOfWord * kFloatsOfWord; }

/// True if two stays may be in the pool at the same time: each has its room when so many kernels run before its own.
bool meet(const PoolStay& one, const PoolStay& other, int ahead) {
  return one.first - ahead <= other.last && other.first - ahead <= one.last;
}

bool overlap(const PoolStay& one, const PoolStay& other) { return one.begin < other.end() && other.begin < one.end(); }

/// Gives each stay the first room that it fits into, the largest stays first. Returns how many floats the pool needs.
std::uint32_t place(std::vector<PoolStay>& stays, int ahead) {
  std::vector<PoolStay*> order;
  order.reserve(stays.size());
  for (PoolStay& stay : stays) order.push_back(&stay);
  std::ranges::stable_sort(order, [](const PoolStay* a, const PoolStay* b) { return a->floats > b->floats; });
  std::uint32_t floats = 0;
  std::vector<const PoolStay*> placed;  // by where they begin
  for (PoolStay* const stay : order) {
    stay->begin = 0;
    for (const PoolStay* other : placed) {
      if (other->begin >= stay->end()) break;
      if (meet(*stay, *other, ahead)) stay->begin = std::max(stay->begin, in_words(other->end()));
    }
    floats = std::max(floats, stay->end());
    placed.insert(std::ranges::upper_bound(placed, stay->begin, {}, &PoolStay::begin), stay);
  }
  return floats;
}

/// Makes plans for a pool, and compares them.
class Planner {
 public:
  Planner(const Layout& layout, std::uint32_t floats_max)
      : layout_(layout), floats_max_(floats_max), keeps_(layout.layers.size(), false) {
    plan_.layers = layout.size();
  }

  /// True if there is a plan without weights that are kept for longer than they must. It is the plan then.
  bool try_ahead(int ahead) {
    for (int layer = 1; layer < layout_.size(); ++layer) {
      // Else they would be copied again before they have gone.
      keeps_[at(layer)] = plan_.errors_kernel(layer) - ahead <= plan_.outputs_kernel(layer);
    }
    return try_plan(ahead);
  }

  /// Keeps weights, those first that are needed again first.
  void keep() {
    for (int layer = layout_.size() - 1; layer > 0; --layer) {
      if (keeps_[at(layer)]) continue;
      keeps_[at(layer)] = true;
      keeps_[at(layer)] = try_plan(plan_.ahead);
    }
  }

  /// Copies as far ahead as the rest allows.
  void go_further_ahead() {
    while (plan_.ahead < 3 * plan_.layers && try_plan(plan_.ahead + 1)) continue;
  }

  PoolPlan result() {
    for (std::size_t stay = 0; stay < plan_.stays.size(); ++stay) find_before(stay);
    return std::move(plan_);
  }

 private:
  static std::size_t at(int layer) { return static_cast<std::size_t>(layer); }

  bool try_plan(int ahead) {
    std::vector<PoolStay> stays = make_stays();
    const std::uint32_t floats = place(stays, ahead);
    if (floats > floats_max_) return false;
    plan_.stays = std::move(stays);
    plan_.floats = floats;
    plan_.ahead = ahead;
    return true;
  }

  std::vector<PoolStay> make_stays() const {
    std::vector<PoolStay> stays;
    const auto add = [&](int layer, bool is_gradient, int first, int last) {
      stays.push_back({layer, is_gradient, first, last, layout_[layer].parameters(), 0, {}});
    };
    for (int layer = 0; layer < layout_.size(); ++layer) {
      const int first = plan_.outputs_kernel(layer);
      add(layer, false, first, keeps_[at(layer)] ? plan_.errors_kernel(layer) : first);
    }
    for (int layer = layout_.size() - 1; layer >= 0; --layer) {
      const int errors = plan_.errors_kernel(layer), gradients = plan_.gradients_kernel(layer);
      if (layer > 0 && !keeps_[at(layer)]) add(layer, false, errors, errors);
      add(layer, true, gradients, gradients);
    }
    return stays;
  }

  /// Finds the stays whose memory one takes, from the last one before it back to itself in the step before. Those are
  /// left out that one which is found has waited for.
  void find_before(std::size_t number) {
    PoolStay& stay = plan_.stays[number];
    const std::size_t count = plan_.stays.size();
    for (std::size_t back = 1; back <= count; ++back) {
      const std::size_t before = (number + count - back) % count;
      const PoolStay& other = plan_.stays[before];
      if (!overlap(stay, other)) continue;
      const auto has_waited = [&](const PoolStay::Before& found) {
        const PoolStay& later = plan_.stays[found.stay];
        return later.begin <= std::max(stay.begin, other.begin) && later.end() >= std::min(stay.end(), other.end());
      };
      if (std::ranges::none_of(stay.after, has_waited)) stay.after.push_back({before, before >= number});
    }
  }

  const Layout& layout_;
  std::uint32_t floats_max_;
  std::vector<bool> keeps_;  ///< by layer: its weights stay until its errors are computed
  PoolPlan plan_;
};

[[noreturn]] void refuse_pool(const Layout& layout, std::uint64_t bytes_max) {
  const auto& largest = *std::ranges::max_element(layout.layers, {}, &Layer::parameters);
  throw gpusock::Error(EINVAL, "--device-pool of " + std::to_string(bytes_max) + " bytes has no room for layer " +
                                   largest.name() + ", which takes " +
                                   std::to_string(std::uint64_t{largest.parameters()} * sizeof(float)) +
                                   " bytes: give at least as many");
}

}  // namespace

PoolPlan PoolPlan::make(const Layout& layout, std::uint64_t bytes_max) {
  const std::uint64_t floats_max = std::min<std::uint64_t>(bytes_max / sizeof(float), ~std::uint32_t{0});
  Planner planner(layout, static_cast<std::uint32_t>(floats_max));
  int ahead = kAheadWanted;
  while (ahead >= 0 && !planner.try_ahead(ahead)) --ahead;
  if (ahead < 0) refuse_pool(layout, bytes_max);
  planner.keep();
  planner.go_further_ahead();
  return planner.result();
}

std::size_t PoolPlan::stay_of(int kernel) const {
  for (std::size_t stay = 0; stay < stays.size(); ++stay) {
    const int layer = stays[stay].layer;
    const bool uses = stays[stay].is_gradient ? kernel == gradients_kernel(layer)
                                              : kernel == outputs_kernel(layer) || kernel == errors_kernel(layer);
    if (uses && stays[stay].first <= kernel && kernel <= stays[stay].last) return stay;
  }
  throw gpusock::Error(EINVAL, "no stay in the pool is that of kernel " + std::to_string(kernel));
}

std::uint64_t PoolPlan::staged_bytes() const {
  std::uint64_t bytes = 0;
  for (const PoolStay& stay : stays) bytes += stay.is_gradient ? 0 : std::uint64_t{stay.floats} * sizeof(float);
  return bytes;
}

}  // namespace param_sync
