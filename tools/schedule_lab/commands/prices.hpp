#pragma once
/// @file The prices of --scheme auto, measured.

#include "param_sync/cost/exchange_prices.hpp"

#include "gpusock/gpusock.hpp"

#include <string>

namespace param_sync::commands {

/// Measures links between at most eight nodes of this machine, and how fast a node makes gradients of factors, for less
/// than a second. In a process of its own, which leaves nothing behind: call it before this process has threads. Throws
/// gpusock::Error.
ExchangePrices measured_prices(int nodes, gpusock::LinkKind link);

}  // namespace param_sync::commands
