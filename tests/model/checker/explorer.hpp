#pragma once
/// @file Which of the possible executions comes next: all of them one after the other (depth first), or seeded random
/// ones.

#include "view.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace gpusock::model {

/// Random executions are of two kinds in turn. In one each step is anybody's. In the other threads have priorities, of
/// which a few change at random steps: so a thread may stand still while others make a long way, which the first kind
/// hardly ever shows. (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
/// ASPLOS 2010.)
class Explorer {
 public:
  /// All executions, in a fixed order.
  void enumerate() {
    random_ = false;
    path_.clear();
  }
  /// Random ones of this seed.
  void randomize(std::uint64_t seed) {
    random_ = true;
    engine_.seed(seed);
  }
  bool is_random() const { return random_; }

  void begin() {
    depth_ = 0;
    if (random_) begin_random();
  }

  /// One of `count` possibilities, of which the first is the usual one.
  std::uint32_t choose(std::uint32_t count) {
    if (count <= 1) return 0;
    if (random_) return by_priority_ && one_of(2) == 0 ? 0 : one_of(count);
    if (depth_ == path_.size()) path_.push_back({0, count});
    return path_[depth_++].chosen;
  }

  /// Which of these threads goes on: its index among them.
  std::uint32_t choose_thread(const std::vector<int>& threads, int last) {
    if (!random_) return choose(static_cast<std::uint32_t>(threads.size()));
    ++steps_;
    if (!by_priority_) return one_of(static_cast<std::uint32_t>(threads.size()));
    if (std::find(changes_.begin(), changes_.end(), steps_) != changes_.end())
      priorities_[static_cast<std::size_t>(last)] = --lowest_;
    const auto first = std::max_element(threads.begin(), threads.end(), [this](int a, int b) {
      return priorities_[static_cast<std::size_t>(a)] < priorities_[static_cast<std::size_t>(b)];
    });
    return static_cast<std::uint32_t>(first - threads.begin());
  }

  /// Goes to the next execution; false: that was the last one.
  bool next() {
    if (random_) return true;
    path_.resize(depth_);  // a pruned execution may have been left early
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().chosen;
    return true;
  }

 private:
  struct Fork {
    std::uint32_t chosen;
    std::uint32_t count;
  };

  std::uint32_t one_of(std::uint32_t count) { return static_cast<std::uint32_t>(engine_() % count); }

  void begin_random() {
    by_priority_ = !by_priority_;
    for (std::int64_t& priority : priorities_) priority = static_cast<std::int64_t>(one_of(1 << 20));
    const std::uint32_t steps_before = std::max(steps_, 16u);  // executions of a case are of about the same length
    for (std::uint32_t& change : changes_) change = 1 + one_of(steps_before);
    steps_ = 0;
    lowest_ = 0;
  }

  std::vector<Fork> path_;
  std::size_t depth_ = 0;
  bool random_ = false;
  std::mt19937_64 engine_;
  bool by_priority_ = false;
  std::array<std::int64_t, kThreadsMax> priorities_{};
  std::array<std::uint32_t, 3> changes_{};  ///< at which steps
  std::uint32_t steps_ = 0;
  std::int64_t lowest_ = 0;
};

}  // namespace gpusock::model
