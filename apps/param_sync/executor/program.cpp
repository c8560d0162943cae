#include "executor/program.hpp"

#include "hash.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace param_sync::executor {
namespace {

int index_of(const std::vector<Channel>& channels, const Channel& channel) {
  return static_cast<int>(std::lower_bound(channels.begin(), channels.end(), channel) - channels.begin());
}

/// True if two lanes send on one channel, or two receive.
bool lanes_share_channels(const schedule::Rank& rank) {
  std::map<std::pair<Channel, bool>, std::size_t> lane_of;  // by channel, and whether it sends
  for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane) {
    for (const schedule::Op& op : rank.lanes[lane]) {
      if (op.receives() && lane_of.try_emplace({{op.from, op.channel}, false}, lane).first->second != lane) return true;
      if (op.sends() && lane_of.try_emplace({{op.to, op.channel}, true}, lane).first->second != lane) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Channel> channels_of(const std::vector<schedule::Schedule>& schedules, int rank) {
  std::set<Channel> channels;
  for (const schedule::Schedule& schedule : schedules) {
    for (const schedule::Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const schedule::Op& op : lane) {
        if (op.receives()) channels.insert({op.from, op.channel});
        if (op.sends()) channels.insert({op.to, op.channel});
      }
    }
  }
  return {channels.begin(), channels.end()};
}

Program program_of(const schedule::Schedule& schedule, int rank, const std::vector<Channel>& channels) {
  const schedule::Rank& part = schedule.ranks[static_cast<std::size_t>(rank)];
  Program program;
  program.chunks = schedule.chunks;
  program.lanes_meet = lanes_share_channels(part);
  for (const schedule::Lane& lane : part.lanes) {
    const int begin = static_cast<int>(program.ops.size());
    for (const schedule::Op& op : lane) {
      LaneOp flat{op.kind, op.chunk, op.count};
      if (op.receives()) flat.in = index_of(channels, {op.from, op.channel});
      if (op.sends()) flat.out = index_of(channels, {op.to, op.channel});
      flat.after_begin = static_cast<int>(program.after.size());
      for (const schedule::OpRef& before : op.after) program.after.push_back({before.lane, before.index + 1});
      flat.after_end = static_cast<int>(program.after.size());
      program.ops.push_back(flat);
    }
    program.lanes.push_back({begin, static_cast<int>(program.ops.size())});
  }
  if (program.lanes.empty()) program.lanes.push_back({});
  return program;
}

std::uint64_t fingerprint(const std::vector<schedule::Schedule>& schedules) {
  std::vector<std::int32_t> words;
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
