#pragma once
/// @file Counts at a moment when no proxy is in a step.

#include "tests/unit/costs/counts.hpp"

#include "gpusock/context/context_impl.hpp"
#include "plain_types/clock.hpp"
#include "tests/support/patience.hpp"

#include <thread>

namespace gpusock::costs {

/// What all threads have done so far. A peer may have a message before the sender's call of the system has returned,
/// and is counted: so this waits for the end of the step that has made the call.
template <class... Contexts>
Counts counts_after_steps(const Contexts&... contexts) {
  (contexts.impl().engine.suspend().unlock(), ...);
  return counts_so_far();
}

/// Lets the proxy do what is left of opening connections, which it else does some time later. And its thread keeps away
/// no longer: until then callers on p2p may make its steps.
inline void settle(Context& context) {
  const Deadline until = patience();
  while (context.impl().engine.keeps_away(detail::monotonic_ns()) && !until.passed()) std::this_thread::yield();
  const auto held = context.impl().engine.suspend();
  for (int i = 0; i < 3; ++i) context.impl().proxy.step(detail::monotonic_ns(), proxy::Proxy::Pass::full);
}

}  // namespace gpusock::costs
