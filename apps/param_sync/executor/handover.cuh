#pragma once
/// @file What resident lanes and the kernels that compute share: their words (param_sync/exchange_words.cuh), and
/// times.

#include "executor/run.cuh"
#include "executor/traced_op.hpp"
#include "param_sync/exchange_words.cuh"

#include <cstdint>

namespace param_sync::executor {

/// Times by the device's clock. The communication of a step lasts from when its first gradients are ready until its
/// last weights are there.
struct ExchangeTimes {
  std::uint64_t first_ready_ns;    ///< of this step
  std::uint64_t communicating_ns;  ///< all steps' communication
  std::uint64_t versions;          ///< that were published
};

}  // namespace param_sync::executor
