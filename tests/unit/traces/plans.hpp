#pragma once
/// @file The plans of other programs that the tests write.

#include "foreign/plan.hpp"

#include <string>
#include <vector>

namespace traces_test {

/// A plan that is proved.
struct NamedPlan {
  std::string name;
  param_sync::foreign::Plan plan;
};

/// Small plans with each kind of step and operation that can be written.
const std::vector<NamedPlan>& plans();

}  // namespace traces_test
