#pragma once
// A proxy that does nothing for a while.
#include <gpusock/gpusock.hpp>

#include <mutex>

namespace gpusock::fault {

/// The context's proxy makes no step while the result lives.
std::unique_lock<std::mutex> stall(Context& context);

}  // namespace gpusock::fault
