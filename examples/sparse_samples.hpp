#pragma once
// Random samples with few features, a rank's part of samples, and what a model is worth for them.
#include "examples/libsvm.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace sparse_samples {

struct Shape {
  std::uint32_t samples = 40'000, features = 2'000;
  std::uint64_t seed = 1;
  bool operator==(const Shape&) const = default;
};

inline void add(libsvm::Samples& samples, float label, const std::map<std::uint32_t, float>& features) {
  samples.labels.push_back(label);
  for (const auto& [feature, value] : features) {
    samples.lists.entries.push_back(feature);
    samples.lists.values.push_back(value);
  }
  samples.lists.begin.push_back(static_cast<std::uint32_t>(samples.lists.entries.size()));
}

/// Random samples. A few weights of the truth are not 0, and early features are in more samples than late ones.
inline libsvm::Samples make(const Shape& shape) {
  constexpr int kFeatures = 10;         // of a sample; some may be the same, whose values are added
  constexpr std::uint32_t kOneOf = 20;  // features matter
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  std::vector<float> truth(shape.features);
  for (std::uint32_t i = 0; i < shape.features; i += kOneOf) truth[i] = 15 * normal(random);
  libsvm::Samples made;
  made.features = shape.features;
  for (std::uint32_t i = 0; i < shape.samples; ++i) {
    std::map<std::uint32_t, float> features;
    float product = 0;
    for (int k = 0; k < kFeatures; ++k) {
      const float where = uniform(random);
      const std::uint32_t feature = std::min(
          shape.features - 1, static_cast<std::uint32_t>(where * where * static_cast<float>(shape.features)));
      const float value = normal(random) / std::sqrt(static_cast<float>(kFeatures));
      features[feature] += value;
      product += truth[feature] * value;
    }
    add(made, uniform(random) < 1 / (1 + std::exp(-product)) ? 1.0f : -1.0f, features);
  }
  return made;
}

/// Each rank has every `ranks`-th sample.
inline libsvm::Samples part_of(const libsvm::Samples& all, std::size_t rank, std::size_t ranks) {
  libsvm::Samples part;
  part.features = all.features;
  for (std::size_t i = rank; i < all.labels.size(); i += ranks) {
    const auto begin = static_cast<std::ptrdiff_t>(all.lists.begin[i]);
    const auto end = static_cast<std::ptrdiff_t>(all.lists.begin[i + 1]);
    part.labels.push_back(all.labels[i]);
    part.lists.entries.insert(part.lists.entries.end(), all.lists.entries.begin() + begin,
                              all.lists.entries.begin() + end);
    part.lists.values.insert(part.lists.values.end(), all.lists.values.begin() + begin, all.lists.values.begin() + end);
    part.lists.begin.push_back(static_cast<std::uint32_t>(part.lists.entries.size()));
  }
  return part;
}

/// The same numbers, by feature.
inline libsvm::Lists by_feature(const libsvm::Lists& samples, std::uint32_t features) {
  libsvm::Lists made;
  made.begin.assign(features + 1, 0);
  for (const std::uint32_t feature : samples.entries) ++made.begin[feature + 1];
  for (std::uint32_t i = 0; i < features; ++i) made.begin[i + 1] += made.begin[i];
  std::vector<std::uint32_t> next(made.begin.begin(), made.begin.end() - 1);
  made.entries.resize(samples.entries.size());
  made.values.resize(samples.entries.size());
  for (std::uint32_t sample = 0; sample + 1 < samples.begin.size(); ++sample) {
    for (std::uint32_t k = samples.begin[sample]; k < samples.begin[sample + 1]; ++k) {
      const std::uint32_t at = next[samples.entries[k]]++;
      made.entries[at] = sample;
      made.values[at] = samples.values[k];
    }
  }
  return made;
}

/// The mean logistic loss, and l1 times the sum of the weights' absolute values.
inline double objective(const libsvm::Samples& samples, const std::vector<float>& weights, double l1) {
  double loss = 0;
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    double product = 0;
    for (std::uint32_t k = samples.lists.begin[i]; k < samples.lists.begin[i + 1]; ++k) {
      product += double{weights[samples.lists.entries[k]]} * samples.lists.values[k];
    }
    loss += std::log1p(std::exp(-samples.labels[i] * product));
  }
  double norm = 0;
  for (const float weight : weights) norm += std::fabs(weight);
  return loss / static_cast<double>(samples.labels.size()) + l1 * norm;
}

}  // namespace sparse_samples
