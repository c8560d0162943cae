#pragma once
/// @file Times pushes and pulls of a store, with all ranks in this process.

#include "baseline/socket_store.hpp"
#include "gpusock/endpoint.hpp"

namespace param_sync::executor {

/// Returns the seconds that all pairs take through a Store with the clock Async, of which each worker is a rank. Throws
/// gpusock::Error, also if the owners' sums are wrong (EIO).
double time_store(const baseline::StoreLoad& load, gpusock::LinkKind link);

}  // namespace param_sync::executor
