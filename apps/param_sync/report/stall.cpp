#include "report/stall.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>

namespace param_sync {
namespace {

struct Lack {
  Stall::Wait wait;
  int waiting;
  int waited_for;
};

const StepProgress* progress_of(const std::vector<StepProgress>& reports, int rank) {
  const auto found = std::find_if(reports.begin(), reports.end(),
                                  [&](const StepProgress& one) { return one.rank == rank; });
  return found == reports.end() ? nullptr : &*found;
}

std::uint64_t earliest_part(const std::vector<StepProgress>& reports) {
  std::uint64_t part = std::numeric_limits<std::uint64_t>::max();
  for (const StepProgress& one : reports) {
    for (std::size_t peer = 0; peer < one.gathered.size(); ++peer) {
      if (static_cast<int>(peer) != one.rank) part = std::min({part, one.gathered[peer], one.pulled[peer]});
    }
  }
  return part;
}

std::vector<Lack> lacks_of(const std::vector<StepProgress>& reports, std::uint64_t part, Stall::Wait wait) {
  std::vector<Lack> lacks;
  for (const StepProgress& one : reports) {
    const auto& come = wait == Stall::Wait::gradients ? one.gathered : one.pulled;
    for (std::size_t peer = 0; peer < come.size(); ++peer) {
      const int rank = static_cast<int>(peer);
      if (rank != one.rank && come[peer] == part) lacks.push_back({wait, one.rank, rank});
    }
  }
  return lacks;
}

/// A node may wait for weights of a part because their owner lacks gradients of that part.
std::vector<Lack> earliest_lacks(const std::vector<StepProgress>& reports, std::uint64_t part) {
  auto lacks = lacks_of(reports, part, Stall::Wait::gradients);
  return lacks.empty() ? lacks_of(reports, part, Stall::Wait::weights) : lacks;
}

/// A node that owes gradients of the part may owe them because a third one does not take its own.
std::vector<Lack> behind_room(const std::vector<Lack>& lacks, const std::vector<StepProgress>& reports,
                              std::uint64_t part) {
  std::vector<Lack> causes;
  for (const Lack& lack : lacks) {
    const StepProgress* owing = lack.wait == Stall::Wait::gradients ? progress_of(reports, lack.waited_for) : nullptr;
    bool blocked = false;
    for (std::size_t peer = 0; owing != nullptr && peer < owing->pushing.size(); ++peer) {
      if (static_cast<int>(peer) == lack.waiting || owing->pushing[peer] != 2 * part + 1) continue;
      causes.push_back({Stall::Wait::room, owing->rank, static_cast<int>(peer)});
      blocked = true;
    }
    if (!blocked) causes.push_back(lack);
  }
  return causes;
}

std::string wait_text(Stall::Wait wait, int waited_for, std::uint64_t step) {
  switch (wait) {
    case Stall::Wait::gradients:
      return fmt::format("rank {}'s gradients of step {}", waited_for, step);
    case Stall::Wait::weights:
      return fmt::format("rank {}'s new weights of step {}", waited_for, step);
    case Stall::Wait::room:
      break;
  }
  return fmt::format("rank {} to take gradients of step {}", waited_for, step);
}

std::string ranks_text(const std::vector<int>& ranks) {
  const std::vector<int> first(ranks.begin(), ranks.end() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), ranks.back());
}

std::uint64_t step_of(std::uint64_t part, int layers) { return part / static_cast<std::uint64_t>(layers) + 1; }

}  // namespace

nlohmann::json to_json(const StepProgress& step_progress) {
  return {{"rank", step_progress.rank},           {"gathered", step_progress.gathered},
          {"pulled", step_progress.pulled},       {"pushing", step_progress.pushing},
          {"positions", step_progress.positions}, {"first_step", step_progress.first_step},
          {"widths", step_progress.widths}};
}

StepProgress step_progress_from(const nlohmann::json& json) {
  return {json.at("rank"),      json.at("gathered"),   json.at("pulled"), json.at("pushing"),
          json.at("positions"), json.at("first_step"), json.at("widths")};
}

Stall find_stall(const std::vector<StepProgress>& reports, int nodes) {
  Stall stall;
  stall.part = earliest_part(reports);
  const auto lacks = behind_room(earliest_lacks(reports, stall.part), reports, stall.part);
  stall.wait = lacks.front().wait;
  stall.waiting = lacks.front().waiting;
  stall.waited_for = lacks.front().waited_for;
  std::set<int> suspects;
  bool silent = false;
  for (const Lack& lack : lacks) {
    suspects.insert(lack.waited_for);
    silent = silent || progress_of(reports, lack.waited_for) == nullptr;
  }
  for (int rank = 0; silent && rank < nodes; ++rank) {  // a silent one may wait for another silent one
    if (progress_of(reports, rank) == nullptr) suspects.insert(rank);
  }
  stall.suspects.assign(suspects.begin(), suspects.end());
  stall.suspect_reported = !silent && suspects.size() == 1;
  return stall;
}

std::string describe(const Stall& stall, int layers, double timeout_s) {
  const std::string how = fmt::format("rank {} waited for {}", stall.waiting,
                                      wait_text(stall.wait, stall.waited_for, step_of(stall.part, layers)));
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

std::string describe_alone(const StepProgress& step_progress, int layers, double timeout_s) {
  const std::vector<StepProgress> reports{step_progress};
  const std::uint64_t part = earliest_part(reports);
  std::vector<std::string> waits;
  for (const Lack& lack : earliest_lacks(reports, part)) {
    waits.push_back(wait_text(lack.wait, lack.waited_for, step_of(part, layers)));
  }
  return describe_waits(step_progress.rank, waits, timeout_s);
}

}  // namespace param_sync
