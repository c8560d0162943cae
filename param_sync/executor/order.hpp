#pragma once
/// @file An order in which all ranks' ops can be done one at a time.

#include "param_sync/schedule/schedule.hpp"

#include <vector>

namespace param_sync::executor {

struct OpLocation {
  int rank = 0;
  int lane = 0;
  int index = 0;
};

/// Returns such an order for a schedule that the checker accepts. A schedule like that does the same in any order, so
/// one order shows what data each op finds.
std::vector<OpLocation> order_of(const schedule::Schedule& schedule);

}  // namespace param_sync::executor
