#include "traces/task_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace param_sync::traces {
namespace {

constexpr std::size_t kSizeMax = std::size_t{1} << 24;

}  // namespace

void join(Waits& waits, const Waits& others) {
  if (others.empty()) return;
  waits.insert(waits.end(), others.begin(), others.end());
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
}

TaskRef TaskLists::add(int rank, Task task, Waits waits) {
  size_ += 1 + waits.size();
  if (size_ > kSizeMax)
    throw schedule::Error(fmt::format("the trace would have more than {} tasks and dependencies", kSizeMax));
  auto& lanes = ranks_[static_cast<std::size_t>(rank)];
  const auto lane = static_cast<std::size_t>(task.lane);
  if (lanes.size() <= lane) lanes.resize(lane + 1);
  const TaskRef end{task.lane, static_cast<int>(lanes[lane].size()), false};
  lanes[lane].push_back({std::move(task), std::move(waits)});
  return end;
}

std::vector<Tasks> TaskLists::finish() {
  std::vector<Tasks> all;
  for (auto& lanes : ranks_) {
    std::vector<int> first;  // the number of each lane's first task
    int number = 0;
    for (const auto& lane : lanes) {
      first.push_back(number);
      number += static_cast<int>(lane.size());
    }
    Tasks& tasks = all.emplace_back();
    for (auto& lane : lanes) {
      for (Listed& listed : lane) {
        for (const TaskRef& wait : listed.waits) {
          listed.task.after.push_back({first[static_cast<std::size_t>(wait.lane)] + wait.index, wait.on_start});
        }
        tasks.push_back(std::move(listed.task));
      }
    }
  }
  return all;
}

}  // namespace param_sync::traces
