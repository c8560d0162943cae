#pragma once
// Random ratings that users give to items, and a rank's part of them, in batches that name items by keys.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ratings {

inline constexpr std::uint32_t kFactors = 4;  // of a user and of an item: a rating is the product of both, and noise
inline constexpr float kNoise = 0.1f;         // its standard deviation; that of the product is 1

struct Rating {
  std::uint32_t user, item;
  float value;
};

struct Shape {
  std::uint32_t users = 1'000, items = 500, ratings = 60'000;
  std::uint64_t seed = 1;
};

inline std::vector<float> random_floats(std::mt19937_64& random, std::size_t count, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> made(count);
  for (float& one : made) one = normal(random);
  return made;
}

/// The ratings of a rank's users, who are numbered anew. A tenth is for the test. Early items have more ratings than
/// late ones.
struct Data {
  Data(const Shape& shape, std::uint32_t rank, std::uint32_t ranks) {
    std::mt19937_64 random(shape.seed);
    const float deviation = 1 / std::sqrt(std::sqrt(static_cast<float>(kFactors)));
    const std::vector<float> users = random_floats(random, std::size_t{shape.users} * kFactors, deviation);
    const std::vector<float> items = random_floats(random, std::size_t{shape.items} * kFactors, deviation);
    std::uniform_real_distribution<float> uniform;
    std::normal_distribution<float> noise(0, kNoise);
    for (std::uint32_t i = 0; i < shape.ratings; ++i) {
      const auto user = static_cast<std::uint32_t>(random() % shape.users);
      const float where = uniform(random);
      const std::uint32_t item = std::min(shape.items - 1,
                                          static_cast<std::uint32_t>(where * where * static_cast<float>(shape.items)));
      const float* const of_user = &users[std::size_t{user} * kFactors];
      const float value = std::inner_product(of_user, of_user + kFactors, &items[std::size_t{item} * kFactors],
                                             noise(random));
      if (user % ranks == rank) (i % 10 == 0 ? test : training).push_back({user / ranks, item, value});
    }
  }
  std::vector<Rating> training, test;
};

/// The key of an item: the finalizer of SplitMix64 (Steele et al., 2014). Different items have different keys.
inline std::uint64_t key_of(std::uint32_t item) {
  std::uint64_t key = (item + std::uint64_t{1}) * 0x9e37'79b9'7f4a'7c15;
  key = (key ^ key >> 30) * 0xbf58'476d'1ce4'e5b9;
  key = (key ^ key >> 27) * 0x94d0'49bb'1331'11eb;
  return key ^ key >> 31;
}

/// The keys of all items, which ascend.
inline std::vector<std::uint64_t> keys_of(std::uint32_t items) {
  std::vector<std::uint64_t> keys;
  for (std::uint32_t item = 0; item < items; ++item) keys.push_back(key_of(item));
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// Where an item's key is among keys that ascend from `first` on.
template <class Iterator>
std::uint32_t place_of(std::uint32_t item, Iterator first, Iterator last) {
  return static_cast<std::uint32_t>(std::lower_bound(first, last, key_of(item)) - first);
}

/// Ratings in batches of equal size, each with the keys of its items, which ascend.
struct Batches {
  Batches(std::vector<Rating> all, std::size_t count) : ratings(std::move(all)) {
    for (std::size_t batch = 0; batch < count; ++batch) {
      begin.push_back(ratings.size() * (batch + 1) / count);
      for (std::size_t i = begin[batch]; i < begin.back(); ++i) keys.push_back(key_of(ratings[i].item));
      const auto first = keys.begin() + static_cast<std::ptrdiff_t>(keys_begin.back());
      std::sort(first, keys.end());
      keys.erase(std::unique(first, keys.end()), keys.end());
      for (std::size_t i = begin[batch]; i < begin.back(); ++i) {
        ratings[i].item = place_of(ratings[i].item, first, keys.end());
      }
      keys_begin.push_back(keys.size());
    }
  }
  std::vector<Rating> ratings;  ///< an item is a place among the keys of its batch
  std::vector<std::uint64_t> keys;
  std::vector<std::size_t> begin{0}, keys_begin{0};  ///< of each batch, and after the last one
};

/// What a model misses.
struct Errors {
  /// Adds these ratings. `items`: rows in the order of the items' keys.
  void add(const std::vector<Rating>& ratings, const std::vector<float>& users, const std::vector<float>& items,
           std::uint32_t factors) {
    const std::vector<std::uint64_t> keys = keys_of(static_cast<std::uint32_t>(items.size() / factors));
    for (const Rating& rating : ratings) {
      const float* const user = &users[std::size_t{rating.user} * factors];
      const float* const item = &items[std::size_t{place_of(rating.item, keys.begin(), keys.end())} * factors];
      const double error = std::inner_product(user, user + factors, item, -double{rating.value});
      squares += error * error;
    }
    count += ratings.size();
  }
  Errors& operator+=(const Errors& other) {
    squares += other.squares, count += other.count;
    return *this;
  }
  double rms() const { return std::sqrt(squares / static_cast<double>(count)); }

  double squares = 0;
  std::size_t count = 0;
};

/// What predictions of the ratings to test miss after each epoch, each rank's with the rows that it reads then.
struct Curve {
  struct Epoch {
    double seconds = 0;  ///< of the slowest rank, since the first epoch began
    Errors errors;
  };

  Curve& operator+=(const Curve& other) {
    epochs.resize(std::max(epochs.size(), other.epochs.size()));
    for (std::size_t i = 0; i < other.epochs.size(); ++i) {
      epochs[i].seconds = std::max(epochs[i].seconds, other.epochs[i].seconds);
      epochs[i].errors += other.epochs[i].errors;
    }
    return *this;
  }
  /// `training`, `test`: at the end, when all ranks read all pushes.
  std::string json(const Errors& training, const Errors& test) const {
    std::string seconds, misses;
    for (const Epoch& epoch : epochs) {
      seconds += (seconds.empty() ? "" : ", ") + std::to_string(epoch.seconds);
      misses += (misses.empty() ? "" : ", ") + std::to_string(epoch.errors.rms());
    }
    return "{\"epochs\": {\"seconds\": [" + seconds + "],\n\"test_rmse\": [" + misses +
           "]},\n\"ratings\": " + std::to_string(training.count) +
           ", \"training_rmse\": " + std::to_string(training.rms()) + ", \"test_rmse\": " + std::to_string(test.rms()) +
           "}\n";
  }

  std::vector<Epoch> epochs;
};

}  // namespace ratings
