#include "traces/goal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace param_sync::traces {
namespace {

std::string line_of(const Task& task) {
  const int processor = task.lane % (kProcessorMax + 1);
  if (task.kind == Kind::compute) return fmt::format("calc {} cpu {}", task.ns, processor);
  return fmt::format("{} {}b {} {} tag {} cpu {}", task.kind == Kind::send ? "send" : "recv",
                     std::max<std::uint64_t>(task.bytes, 1), task.kind == Kind::send ? "to" : "from", task.peer,
                     task.tag, processor);
}

}  // namespace

std::string to_goal(const std::vector<Tasks>& ranks) {
  std::string text = fmt::format("num_ranks {}\n", ranks.size());
  const auto end = std::back_inserter(text);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Tasks& tasks = ranks[rank];
    fmt::format_to(end, "\nrank {} {{\n", rank);
    if (tasks.empty()) text += "l1: calc 0\n";
    for (std::size_t i = 0; i < tasks.size(); ++i) fmt::format_to(end, "l{}: {}\n", i + 1, line_of(tasks[i]));
    // A reader knows only labels that it has met, and a task may wait for one of a later lane: so all tasks come first.
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      for (const Dependency& before : tasks[i].after) {
        fmt::format_to(end, "l{} {} l{}\n", i + 1, before.on_start ? "irequires" : "requires", before.task + 1);
      }
    }
    text += "}\n";
  }
  return text;
}

}  // namespace param_sync::traces
