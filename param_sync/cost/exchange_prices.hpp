#pragma once
/// @file The prices by which a training chooses a scheme for each layer.

namespace param_sync {

/// Prices of a network and of nodes. The defaults are those of `--scheme auto`.
struct ExchangePrices {
  double latency_us = 50;        ///< time from when a message leaves until it arrives
  double overhead_us = 1;        ///< overhead of each message
  double gigabits = 10;          ///< Gb/s of each node in each direction
  double reduce_gigabytes = 10;  ///< GB/s that a lane adds
  double multiply_adds = 1000;   ///< 10^9 multiply-adds per second of a node that makes gradients from factors
};

/// The members of ExchangePrices, in the order of `--prices`.
inline constexpr double ExchangePrices::*kPrices[] = {&ExchangePrices::latency_us, &ExchangePrices::overhead_us,
                                                      &ExchangePrices::gigabits, &ExchangePrices::reduce_gigabytes,
                                                      &ExchangePrices::multiply_adds};

}  // namespace param_sync
