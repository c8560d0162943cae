#pragma once
/// @file What the choice of a scheme for each layer of a training reckons with.

namespace param_sync {

/// Prices of a network and of nodes. The defaults are those of `--scheme auto`.
struct ExchangePrices {
  double latency_us = 50;        ///< from a message's leaving to its arrival
  double overhead_us = 1;        ///< of each message
  double gigabits = 10;          ///< per second, of each node, each way
  double reduce_gigabytes = 10;  ///< per second that a lane adds
  double multiply_adds = 1000;   ///< 10^9 per second, of a node that makes gradients of factors
};

/// The members of ExchangePrices, in the order of `--prices`.
inline constexpr double ExchangePrices::*kPrices[] = {&ExchangePrices::latency_us, &ExchangePrices::overhead_us,
                                                      &ExchangePrices::gigabits, &ExchangePrices::reduce_gigabytes,
                                                      &ExchangePrices::multiply_adds};

}  // namespace param_sync
