#pragma once
/// @file What the network learns, and its first weights.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace split_layer {

inline constexpr std::uint32_t kInputs = 16, kClasses = 4;

struct Options {
  int ranks = 4;
  unsigned threads = 32;
  std::string split = "columns";
  std::uint32_t width = 256, batch = 8, steps = 40;
  float learning_rate = 0.1F;
  std::uint64_t seed = 1;
};

/// Random numbers from -1 to 1, and what a fixed random network says of them: the same for all ranks.
struct Problem {
  std::vector<float> samples, first, middle, last;
  std::vector<std::uint32_t> labels;

  explicit Problem(const Options& options) {
    std::mt19937_64 random(options.seed);
    const auto fill = [&](std::vector<float>& to, std::size_t count, float limit) {
      for (std::size_t i = 0; i < count; ++i) to.push_back(limit * (static_cast<float>(random() >> 40) * 0x1p-23F - 1));
    };
    const std::size_t all = std::size_t{options.steps} * options.batch * static_cast<std::size_t>(options.ranks);
    const auto limit = [](std::uint32_t inputs) { return std::sqrt(6.0F / static_cast<float>(inputs)); };
    std::vector<float> truth;
    fill(truth, kInputs * kClasses, 1);
    fill(samples, all * kInputs, 1);
    fill(first, std::size_t{kInputs} * options.width, limit(kInputs));
    fill(middle, std::size_t{options.width} * options.width, limit(options.width));
    fill(last, std::size_t{options.width} * kClasses, limit(options.width));
    for (std::size_t sample = 0; sample < all; ++sample) {
      std::uint32_t best = 0;
      float most = -INFINITY;
      for (std::uint32_t c = 0; c < kClasses; ++c) {
        float score = 0;
        for (std::uint32_t i = 0; i < kInputs; ++i) score += samples[sample * kInputs + i] * truth[i * kClasses + c];
        if (score > most) most = score, best = c;
      }
      labels.push_back(best);
    }
  }
};

}  // namespace split_layer
