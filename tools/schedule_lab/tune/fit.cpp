#include "tune/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace param_sync::tune {
namespace {

constexpr std::size_t kPrices = 5;  // start, latency, overhead, seconds to send a byte, seconds to add a byte
using Prices = std::array<double, kPrices>;
using Rows = std::vector<Prices>;

constexpr double kInfinite = 1e300;  // an infinite bandwidth

Fit fit_of(const Prices& prices) {
  Fit made;
  made.start_s = prices[0];
  made.network.latency_s = prices[1];
  made.network.overhead_s = prices[2];
  made.network.bandwidth = prices[3] > 0 ? 1 / prices[3] : kInfinite;
  made.network.reduce_bandwidth = prices[4] > 0 ? 1 / prices[4] : kInfinite;
  return made;
}

/// Returns how often each measurement pays each price, divided by its time: the sum over entries * prices should be 1.
Rows rows_of(const std::vector<Measurement>& measurements, const Fit& guess) {
  Rows rows;
  for (const Measurement& one : measurements) {
    const cost::Terms terms = cost::terms_of(one.costs, one.bytes, guess.network);
    rows.push_back({1 / one.seconds, terms.latencies / one.seconds, terms.overheads / one.seconds,
                    terms.bytes / one.seconds, terms.added_bytes / one.seconds});
  }
  return rows;
}

/// Finds the prices of `taken` (a bit for each) with the least sum of squares, and sets the others to 0. False if the
/// measurements cannot tell the prices apart. Scales the columns, since latencies and bytes differ by many orders.
bool solve(const Rows& rows, unsigned taken, Prices& prices) {
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < kPrices; ++i) {
    if ((taken >> i & 1) != 0) columns.push_back(i);
  }
  const std::size_t n = columns.size();
  Prices scale{};
  for (const std::size_t column : columns) {
    for (const Prices& row : rows) scale[column] += row[column] * row[column];
    if (scale[column] == 0) return false;
    scale[column] = std::sqrt(scale[column]);
  }
  std::array<std::array<double, kPrices + 1>, kPrices> system{};  // the normal equations
  for (std::size_t i = 0; i < n; ++i) {
    for (const Prices& row : rows) {
      const double own = row[columns[i]] / scale[columns[i]];
      for (std::size_t j = 0; j < n; ++j) system[i][j] += own * row[columns[j]] / scale[columns[j]];
      system[i][n] += own;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {  // Gauss, with pivots
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < n; ++k) {
      if (std::fabs(system[k][i]) > std::fabs(system[pivot][i])) pivot = k;
    }
    if (std::fabs(system[pivot][i]) < 1e-9) return false;
    std::swap(system[i], system[pivot]);
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = system[k][i] / system[i][i];
      for (std::size_t j = i; j <= n; ++j) system[k][j] -= factor * system[i][j];
    }
  }
  prices = {};
  for (std::size_t i = 0; i < n; ++i) prices[columns[i]] = system[i][n] / system[i][i] / scale[columns[i]];
  return true;
}

double squares(const Rows& rows, const Prices& prices) {
  double sum = 0;
  for (const Prices& row : rows) {
    double share = -1;
    for (std::size_t i = 0; i < kPrices; ++i) share += row[i] * prices[i];
    sum += share * share;
  }
  return sum;
}

/// Least squares without negative prices. There are only five, so this tries all sets of prices that are not 0.
Prices least_squares(const Rows& rows) {
  Prices best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned taken = 1; taken < 1U << kPrices; ++taken) {
    Prices prices{};
    if (!solve(rows, taken, prices)) continue;
    bool possible = true;
    for (const double price : prices) possible = possible && price >= 0;
    if (!possible) continue;
    const double sum = squares(rows, prices);
    if (sum >= least) continue;
    least = sum;
    best = prices;
  }
  return best;
}

}  // namespace

Fit fit(const std::vector<Measurement>& measurements) {
  if (measurements.size() < kPrices) throw schedule::Error("a fit needs five measurements at least");
  for (const Measurement& one : measurements) {
    if (!(one.seconds > 0)) throw schedule::Error("a fit: " + one.what + " took no time");
  }
  // Which terms count depends on the prices (the cost model takes the longer of two times), so this iterates and keeps
  // the best fit.
  constexpr int kIterations = 8;
  Fit best, guess;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kIterations; ++i) {
    guess = fit_of(least_squares(rows_of(measurements, guess)));
    double sum = 0;
    for (const Measurement& one : measurements) {
      const double error = guess.predicted_s(one.costs, one.bytes) / one.seconds - 1;
      sum += error * error;
    }
    if (sum >= least) continue;
    least = sum;
    best = guess;
  }
  return best;
}

FitError error_of(const Fit& fit, const std::vector<Measurement>& measurements) {
  FitError result;
  for (const Measurement& one : measurements) {
    const double error = std::fabs(fit.predicted_s(one.costs, one.bytes) / one.seconds - 1);
    result.mean += error / static_cast<double>(measurements.size());
    if (error < result.worst) continue;
    result.worst = error;
    result.worst_at = one.what;
  }
  return result;
}

std::vector<Regret> regrets_of(const Fit& fit, const std::vector<Measurement>& measurements) {
  struct Choice {
    const Measurement* taken = nullptr;
    const Measurement* best = nullptr;
  };
  std::map<double, Choice> by_bytes;
  for (const Measurement& one : measurements) {
    auto& [taken, best] = by_bytes[one.bytes];
    const auto predicted = [&](const Measurement& of) { return fit.predicted_s(of.costs, of.bytes); };
    if (taken == nullptr || predicted(one) < predicted(*taken)) taken = &one;
    if (best == nullptr || one.seconds < best->seconds) best = &one;
  }
  std::vector<Regret> all;
  for (const auto& [bytes, choice] : by_bytes) {
    all.push_back({bytes, choice.taken->what, choice.best->what, choice.taken->seconds / choice.best->seconds - 1});
  }
  return all;
}

double drift_of(const std::vector<Measurement>& first, const std::vector<Measurement>& second) {
  std::vector<double> changes;
  for (std::size_t i = 0; i < first.size(); ++i) {
    changes.push_back(std::fabs(second[i].seconds / first[i].seconds - 1));
  }
  std::sort(changes.begin(), changes.end());
  return changes[changes.size() / 2];
}

double scatter_of(const std::vector<double>& seconds) {
  const auto at = [&](std::size_t quarters) { return seconds[(seconds.size() - 1) * quarters / 4]; };
  return (at(3) - at(1)) / at(2);
}

}  // namespace param_sync::tune
