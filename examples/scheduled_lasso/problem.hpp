#pragma once
// Random samples whose features come in groups: those of a group are nearly the same, and the others have little in
// common. A few weights of the truth are not 0.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lasso {

struct Shape {
  std::uint32_t samples = 1'000, features = 500;
  std::uint32_t groups = 3, group_features = 120;  ///< the first features; the others are in no group
  float correlation = 0.9f;                        ///< of two features of a group
  std::uint64_t seed = 1;
  bool operator==(const Shape&) const = default;
};

/// Features are columns of norm 1, one after the other.
struct Problem {
  std::uint32_t samples = 0, features = 0;
  std::vector<float> columns, labels;
  std::vector<float> truth;  ///< weights
};

inline Problem make(const Shape& shape) {
  constexpr std::uint32_t kOneOf = 20;  // features matter
  constexpr float kNoise = 0.5f;        // beside what the features explain, whose deviation is 1
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<float> normal;
  const std::size_t samples = shape.samples;
  Problem made{shape.samples, shape.features, std::vector<float>(samples * shape.features), std::vector<float>(samples),
               std::vector<float>(shape.features)};
  std::vector<float> common(samples);
  for (std::uint32_t feature = 0; feature < shape.features; ++feature) {
    const bool is_grouped = feature < shape.groups * shape.group_features;
    if (is_grouped && feature % shape.group_features == 0) {
      for (float& one : common) one = normal(random);
    }
    const float share = is_grouped ? shape.correlation : 0;
    float* const column = &made.columns[samples * feature];
    double squares = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      column[i] = std::sqrt(share) * common[i] + std::sqrt(1 - share) * normal(random);
      squares += double{column[i]} * column[i];
    }
    const auto scale = static_cast<float>(1 / std::sqrt(squares));
    if (feature % kOneOf == 0) made.truth[feature] = 3 * normal(random);
    for (std::size_t i = 0; i < samples; ++i) {
      column[i] *= scale;
      made.labels[i] += made.truth[feature] * column[i];
    }
  }
  double squares = 0;
  for (const float label : made.labels) squares += double{label} * label;
  const auto deviation = static_cast<float>(std::sqrt(squares / static_cast<double>(samples)));
  for (float& label : made.labels) label += kNoise * deviation * normal(random);
  return made;
}

/// Each rank has samples that follow each other: [begin, end) of them.
inline Problem part_of(const Problem& all, std::uint32_t rank, std::uint32_t ranks) {
  const auto begin = static_cast<std::uint32_t>(std::uint64_t{all.samples} * rank / ranks);
  const auto end = static_cast<std::uint32_t>(std::uint64_t{all.samples} * (rank + 1) / ranks);
  Problem part{end - begin, all.features, {}, {all.labels.begin() + begin, all.labels.begin() + end}, all.truth};
  for (std::size_t feature = 0; feature < all.features; ++feature) {
    const auto column = all.columns.begin() + static_cast<std::ptrdiff_t>(feature * all.samples);
    part.columns.insert(part.columns.end(), column + begin, column + end);
  }
  return part;
}

/// The least weight of the L1 norm with which all weights are 0.
inline double l1_max(const Problem& problem) {
  double most = 0;
  for (std::size_t feature = 0; feature < problem.features; ++feature) {
    const float* const column = &problem.columns[feature * problem.samples];
    double product = 0;
    for (std::size_t i = 0; i < problem.samples; ++i) product += double{column[i]} * problem.labels[i];
    most = std::max(most, std::fabs(product));
  }
  return most;
}

}  // namespace lasso
