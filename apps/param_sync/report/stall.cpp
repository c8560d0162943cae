#include "report/stall.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace param_sync {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  const std::vector<int> first(ranks.begin(), ranks.end() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), ranks.back());
}

}  // namespace

nlohmann::json to_json(const SampleShape& sample) {
  return {{"rows", sample.rows}, {"columns", sample.columns}, {"classes", sample.classes}};
}

SampleShape sample_shape_from(const nlohmann::json& json) {
  return {json.at("rows"), json.at("columns"), json.at("classes")};
}

nlohmann::json to_json(const StepProgress& step_progress) {
  return {{"rank", step_progress.rank},
          {"positions", step_progress.positions},
          {"first_step", step_progress.first_step},
          {"sample", to_json(step_progress.sample)}};
}

StepProgress step_progress_from(const nlohmann::json& json) {
  return {json.at("rank"), json.at("positions"), json.at("first_step"), sample_shape_from(json.at("sample"))};
}

std::string wait_text(Stall::Wait wait, int waited_for, std::uint64_t step) {
  switch (wait) {
    case Stall::Wait::gradients:
      return fmt::format("rank {}'s gradients of step {}", waited_for, step + 1);
    case Stall::Wait::weights:
      return fmt::format("rank {}'s new weights of step {}", waited_for, step + 1);
    case Stall::Wait::room:
      break;
  }
  return fmt::format("rank {} to take gradients of step {}", waited_for, step + 1);
}

std::string describe(const Stall& stall, double timeout_s) {
  const std::string how = fmt::format("rank {} waited for {}", stall.waiting,
                                      wait_text(stall.wait, stall.waited_for, stall.step));
  if (stall.suspects.size() > 1) {
    return fmt::format(
        "no progress for {:g} s because of at least one of the ranks {} (which of them only waited for another "
        "cannot be known): {}; raise --timeout if they are only slow",
        timeout_s, ranks_text(stall.suspects), how);
  }
  const int suspect = stall.suspects.front();
  const std::string who = stall.suspect_reported
                              ? fmt::format("rank {}, or its connection with rank {}, has", suspect, stall.waiting)
                              : fmt::format("rank {} has", suspect);
  return fmt::format("{} made no progress for {:g} s: {}; raise --timeout if it is only slow", who, timeout_s, how);
}

std::string describe_waits(int rank, const std::vector<std::string>& waits, double timeout_s) {
  return fmt::format(
      "rank {}: waited {:g} s in vain for {}. Who owes that may itself only wait for another node: compare the "
      "nodes' messages, the earliest step tells; raise --timeout if they are only slow",
      rank, timeout_s, fmt::join(waits, " and "));
}

}  // namespace param_sync
