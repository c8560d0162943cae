#pragma once
/// @file Which of the possible executions comes next: all of them one after the other (depth first), or seeded random ones.

#include <cstdint>
#include <random>
#include <vector>

namespace gpusock::model {

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

  void begin() { depth_ = 0; }

  /// One of `count` possibilities.
  std::uint32_t choose(std::uint32_t count) {
    if (count <= 1) return 0;
    if (random_) return static_cast<std::uint32_t>(engine_() % count);
    if (depth_ == path_.size()) path_.push_back({0, count});
    return path_[depth_++].chosen;
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
  std::vector<Fork> path_;
  std::size_t depth_ = 0;
  bool random_ = false;
  std::mt19937_64 engine_;
};

}  // namespace gpusock::model
