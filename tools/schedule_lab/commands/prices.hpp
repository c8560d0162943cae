#pragma once
/// @file Measures the prices of --scheme auto.

#include "param_sync/cost/exchange_prices.hpp"

#include "gpusock/gpusock.hpp"

#include <string>

namespace param_sync::commands {

/// Measures for less than a second links between at most eight nodes of this machine, and how fast a node makes
/// gradients from factors. Forks a process that measures and leaves nothing behind, so call it before this process has
/// threads. Throws gpusock::Error.
ExchangePrices measured_prices(int nodes, gpusock::LinkKind link);

}  // namespace param_sync::commands
