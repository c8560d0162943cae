#include "foreign/prove.hpp"

#include "foreign/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace param_sync::foreign {
namespace {

/// Throws Error if more blocks meet at a barrier than it waits for: which ones meet would depend on timing.
void require_clear_barriers(const Plan& plan) {
  std::vector<std::set<int>> users(plan.barriers.size());
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    for (const Step& step : plan.blocks[block].steps) {
      if (step.kind == Kind::barrier) users[static_cast<std::size_t>(step.barrier)].insert(static_cast<int>(block));
    }
  }
  for (std::size_t i = 0; i < users.size(); ++i) {
    const auto blocks = static_cast<int>(users[i].size());
    if (blocks <= plan.barriers[i].blocks) continue;
    throw Error(fmt::format("{} waits for {} thread blocks, but {} come to it: we cannot say which ones meet",
                            plan.barriers[i].name, plan.barriers[i].blocks, blocks));
  }
}

bool has_relaxed(const Plan& plan) {
  return std::any_of(plan.blocks.begin(), plan.blocks.end(), [](const Block& block) {
    return std::any_of(block.steps.begin(), block.steps.end(), [](const Step& step) { return step.relaxed; });
  });
}

int longest_message(const Plan& plan) {
  int longest = 1;
  for (const Block& block : plan.blocks) {
    for (const Step& step : block.steps) longest = step.sends == kNone ? longest : std::max(longest, step.count);
  }
  return longest;
}

/// Runs one call. Returns false if it does not end.
bool ends(const Plan& plan, const Conditions& conditions, Proof& proof) {
  try {
    Run run(plan, conditions);
    run.run();
    proof.steps = run.steps();
    proof.cells = run.cells();
    return true;
  } catch (const Hang&) {
    return false;
  }
}

/// Proves one call. The smaller the data, the more chunks of a message travel as one piece: `conditions` gets the
/// fewest chunks with which it ends. It ends with more of them, too.
void prove_call(const Plan& plan, Conditions& conditions, Proof& proof) {
  if (ends(plan, conditions, proof)) return;
  int too_few = conditions.piece;
  int enough = std::max(too_few, longest_message(plan));
  conditions.piece = enough;
  if (!ends(plan, conditions, proof)) Run(plan, conditions).run();  // throws Hang
  while (enough - too_few > 1) {
    conditions.piece = (too_few + enough) / 2;
    (ends(plan, conditions, proof) ? enough : too_few) = conditions.piece;
  }
  conditions.piece = enough;
  const std::uint64_t bytes = plan.piece_bytes / static_cast<std::uint64_t>(enough) *
                              static_cast<std::uint64_t>(plan.data_chunks);
  proof.bytes_max = proof.bytes_max == 0 ? bytes : std::min(proof.bytes_max, bytes);
  if (plan.bytes_max != 0 && plan.bytes_max <= bytes) return;
  conditions.piece = too_few;
  try {
    Run(plan, conditions).run();
  } catch (const Hang& hang) {
    throw Refuted(fmt::format("with data of more than {} bytes: {}", bytes, hang.what()));
  }
}

/// Proves it where input and output are one buffer, or where they are two.
void prove_where(const Plan& plan, bool in_place, const std::string& where, Proof& proof) {
  Conditions conditions;
  conditions.in_place = in_place;
  try {
    prove_call(plan, conditions, proof);
  } catch (const Refuted& refuted) {
    proof.is_proved = false;
    proof.why = where + refuted.what();
  }
  if (proof.is_proved) {
    conditions.calls = plan.doubles_scratch ? 3 : 2;
    try {
      Run(plan, conditions).run();
    } catch (const Refuted& refuted) {
      if (proof.in_a_row.empty()) proof.in_a_row = where + refuted.what();
    }
  } else if (has_relaxed(plan)) {
    conditions.relaxed_signals_order = true;
    try {
      Proof other;
      prove_call(plan, conditions, other);
      proof.if_relaxed = true;
    } catch (const Refuted&) {
    }
  }
}

}  // namespace

Proof prove(const Plan& plan) {
  Proof proof;
  if (!plan.fault.empty()) {
    proof.why = plan.fault;
    return proof;
  }
  require_clear_barriers(plan);
  const bool is_both = plan.runs_in_place && plan.runs_out_of_place;
  proof.is_proved = true;
  if (plan.runs_in_place) prove_where(plan, true, is_both ? "in place: " : "", proof);
  if (plan.runs_out_of_place && proof.is_proved) prove_where(plan, false, is_both ? "out of place: " : "", proof);
  if (!proof.is_proved) proof.in_a_row.clear();
  return proof;
}

}  // namespace param_sync::foreign
