#pragma once
/// @file What owners do with the changes of nodes that have trained by themselves (--outer): they take the average, or
/// it is the gradient of an optimizer of their own (Douillard et al., "DiLoCo: Distributed low-communication training
/// of language models", 2023).

#include "param_sync/update/sgd.hpp"

#include <string_view>

namespace param_sync {

/// Returns the owners' update by its text: "" adds changes; "nesterov" is SGD with Nesterov's momentum, a learning rate
/// of 0.7 and a momentum of 0.9, as in DiLoCo; "nesterov:LR,MOMENTUM" has others. Throws gpusock::Error (EINVAL).
Sgd outer_of(std::string_view text);

}  // namespace param_sync
