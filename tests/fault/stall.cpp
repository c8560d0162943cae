#include "stall.hpp"

#include "gpusock/context/context_impl.hpp"

namespace gpusock::fault {

std::unique_lock<std::mutex> stall(Context& context) { return context.impl().engine.suspend(); }

}  // namespace gpusock::fault
