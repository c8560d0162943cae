#pragma once
/// @file No bound (Recht et al., "Hogwild!", NIPS 2011, and Dean et al., "Large scale distributed deep networks", NIPS
/// 2012, whose Downpour SGD pushes and pulls so).

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// A reader sees its own pushes, and of the others' those that have come.
struct Async {
  static constexpr bool kInRankOrder = false;  ///< see Bsp
  static constexpr bool kDropsLate = false;    ///< likewise

  /// See Bsp.
  GPUSOCK_FN bool suffices(std::uint64_t contained, bool own, std::uint64_t clock) const {
    return !own || contained >= clock;
  }
};

}  // namespace param_sync
