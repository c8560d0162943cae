#include "param_sync/executor/hello.hpp"

#include "param_sync/executor/executor.hpp"
#include "param_sync/wire/hash.hpp"

namespace param_sync::executor {

std::uint64_t fingerprint(const std::vector<schedule::Schedule>& schedules, const Settings& settings) {
  const Execution& execution = settings.execution;
  std::vector<std::int32_t> words{execution.rank_order, execution.weights_apart, static_cast<int>(settings.last_words)};
  for (const schedule::Schedule& schedule : schedules) {
    words.insert(words.end(), {schedule.nodes(), schedule.chunks, static_cast<int>(schedule.result), schedule.workers});
    for (const schedule::Rank& rank : schedule.ranks) {
      words.push_back(static_cast<int>(rank.lanes.size()));
      for (const schedule::Lane& lane : rank.lanes) {
        words.push_back(static_cast<int>(lane.size()));
        for (const schedule::Op& op : lane) {
          words.insert(words.end(), {static_cast<int>(op.kind), op.chunk, op.count, op.from, op.to, op.channel,
                                     static_cast<int>(op.after.size())});
          for (const schedule::OpRef& before : op.after) words.insert(words.end(), {before.lane, before.index});
        }
      }
    }
  }
  return fnv1a(words.data(), words.size() * sizeof words[0]);
}

}  // namespace param_sync::executor
