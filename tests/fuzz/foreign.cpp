// Plans of other programs: any text is refused with an Error, or what it describes is proved, refuted or not
// understood, and each time alike.
#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "tests/fuzz/target.hpp"

namespace gpusock::fuzz::of_foreign {

using param_sync::foreign::Block;
using param_sync::foreign::Error;
using param_sync::foreign::Plan;
using param_sync::foreign::Proof;
using param_sync::foreign::Step;

/// Accesses of all steps: a plan with many takes seconds.
std::size_t accesses(const Plan& plan) {
  std::size_t sum = 0;
  for (const Block& block : plan.blocks) {
    for (const Step& step : block.steps)
      sum += 1 + static_cast<std::size_t>(step.count) * (1 + step.from.size() + step.to.size());
  }
  return sum;
}

FUZZ_TARGET(foreign) {
  try {
    const Plan plan = param_sync::foreign::read_plan(input.rest());
    if (accesses(plan) > 20'000 || plan.ranks * plan.data_chunks > 20'000) return;
    const Proof proof = param_sync::foreign::prove(plan);
    FUZZ_CHECK(proof.is_proved == proof.why.empty());
    FUZZ_CHECK(proof.is_proved || proof.in_a_row.empty());
    const Proof again = param_sync::foreign::prove(plan);
    FUZZ_CHECK(again.why == proof.why && again.steps == proof.steps && again.bytes_max == proof.bytes_max);
  } catch (const Error&) {
  }
}

}  // namespace gpusock::fuzz::of_foreign
