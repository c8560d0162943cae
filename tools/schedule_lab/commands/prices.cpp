#include "commands/prices.hpp"

#include "commands/measure.hpp"
#include "param_sync/executor/factors.hpp"

#include "gpusock/gpusock.hpp"

#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

namespace param_sync::commands {
namespace {

constexpr int kNodesMeasuredMax = 8;
constexpr int kRepeats = 5;
constexpr double kPriceMax = 1e6;  // the price of work that is too fast to be measured

/// Measures how fast a node makes gradients from factors, in 10^9 multiply-adds per second.
double rebuild_speed() {
  constexpr executor::FactorLayout kLayout{256, 256, 64, 1};
  gpusock::Context context;
  gpusock::DeviceBuffer<float> factors(context, kLayout.gathered_floats()),
      gradient(context, kLayout.gradient_floats());
  double best_s = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    executor::rebuild_gradient(context, kLayout, factors.data(), gradient.data());
    context.synchronize();
    best_s = std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return static_cast<double>(kLayout.gradient_floats()) * kLayout.samples / best_s * 1e-9;
}

/// Rounds a price to the digits that are printed, so that the printed numbers lead to the same choices again.
double rounded(double price, double least) {
  return std::stod(fmt::format("{:.4g}", std::clamp(price, least, kPriceMax)));
}

ExchangePrices measure(int nodes, gpusock::LinkKind link) {
  const auto network = measure_links(std::clamp(nodes, 2, kNodesMeasuredMax), link, kRepeats).fit.network;
  constexpr double kSpeedMin = 1e-3;
  return {rounded(network.latency_s * 1e6, 0), rounded(network.overhead_s * 1e6, 0),
          rounded(network.bandwidth * 8e-9, kSpeedMin), rounded(network.reduce_bandwidth * 1e-9, kSpeedMin),
          rounded(rebuild_speed(), kSpeedMin)};
}

[[noreturn]] void measure_into(int to, int nodes, gpusock::LinkKind link) {
  int status = 1;
  try {
    const ExchangePrices prices = measure(nodes, link);
    if (write(to, &prices, sizeof prices) == static_cast<ssize_t>(sizeof prices)) status = 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "param_sync: {}\n", error.what());
  }
  std::fflush(stderr);
  _exit(status);  // not exit(): only the parent may write what is still in its buffers
}

}  // namespace

ExchangePrices measured_prices(int nodes, gpusock::LinkKind link) {
  int ends[2];
  if (pipe(ends) != 0) throw gpusock::Error(errno, "measuring prices: no pipe");
  const pid_t child = fork();
  if (child == 0) measure_into(ends[1], nodes, link);
  const int fork_error = errno;
  close(ends[1]);
  ExchangePrices prices;
  ssize_t got = -1;
  while (child > 0 && (got = read(ends[0], &prices, sizeof prices)) < 0 && errno == EINTR) {
  }
  close(ends[0]);
  if (child < 0) throw gpusock::Error(fork_error, "measuring prices: no process");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof prices)) return prices;
  throw gpusock::Error(EIO, "--prices measured: the measurement has failed; give five numbers instead");
}

}  // namespace param_sync::commands
