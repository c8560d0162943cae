#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::schedule {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& why) { throw Error(where + ": " + why); }

void validate_peer(const Schedule& schedule, int rank, const std::string& where, const char* name, int peer,
                   bool needed) {
  if (!needed) {
    if (peer != kNobody) refuse(where, fmt::format("this op has no \"{}\"", name));
    return;
  }
  if (peer == kNobody) refuse(where, fmt::format("\"{}\" is missing", name));
  if (peer < 0 || peer >= schedule.nodes()) {
    refuse(where, fmt::format("\"{}\" is {}, but ranks are 0 to {}", name, peer, schedule.nodes() - 1));
  }
  if (peer == rank) refuse(where, fmt::format("\"{}\" is rank {} itself", name, rank));
}

void validate_after(const Rank& rank, const OpRef& self, const std::string& where, const OpRef& before) {
  const int lanes = static_cast<int>(rank.lanes.size());
  if (before.lane < 0 || before.lane >= lanes) {
    refuse(where, fmt::format("\"after\" names lane {}, but this rank's lanes are 0 to {}", before.lane, lanes - 1));
  }
  const int ops = static_cast<int>(rank.lanes[static_cast<std::size_t>(before.lane)].size());
  if (before.index < 0 || before.index >= ops) {
    refuse(where, fmt::format("\"after\" names op {} of lane {}, which has {} ops", before.index, before.lane, ops));
  }
  if (before == self) refuse(where, "\"after\" names the op itself");
}

void validate_op(const Schedule& schedule, int rank, const OpRef& self, const Op& op) {
  const auto where = [&] { return location(rank, self.lane, self.index); };
  if (op.is_signal() && op.kind != Kind::send && op.kind != Kind::recv) {
    refuse(where(), fmt::format("{} of 0 chunks: only send and recv can be without chunks", to_string(op.kind)));
  }
  const int used = std::max(op.count, 1);  // a signal also names a chunk
  if (op.chunk < 0 || op.count < 0 || used > schedule.chunks || op.chunk > schedule.chunks - used) {
    refuse(where(),
           fmt::format("{} chunks from {} on, but chunks are 0 to {}", op.count, op.chunk, schedule.chunks - 1));
  }
  if (op.channel < 0 || op.channel >= kChannelsMax) {
    refuse(where(), fmt::format("channel {}, but channels are 0 to {}", op.channel, kChannelsMax - 1));
  }
  validate_peer(schedule, rank, where(), "from", op.from, op.receives());
  validate_peer(schedule, rank, where(), "to", op.to, op.sends());
  for (const OpRef& before : op.after) {
    validate_after(schedule.ranks[static_cast<std::size_t>(rank)], self, where(), before);
  }
}

}  // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
    case Kind::recv_reduce:
      return "recv_reduce";
    case Kind::recv_send:
      return "recv_send";
    case Kind::recv_reduce_send:
      return "recv_reduce_send";
    case Kind::apply:
      return "apply";
  }
  return "?";
}

const char* to_string(Result result) {
  switch (result) {
    case Result::all_reduce:
      return "all_reduce";
    case Result::reduce_scatter:
      return "reduce_scatter";
    case Result::all_gather:
      return "all_gather";
    case Result::broadcast:
      return "broadcast";
    case Result::parameter_server:
      return "parameter_server";
    case Result::gather:
      return "gather";
  }
  return "?";
}

int shift_channels(Schedule& schedule, int first) {
  int end = first;
  for (Rank& rank : schedule.ranks) {
    for (Lane& lane : rank.lanes) {
      for (Op& op : lane) {
        if (!op.receives() && !op.sends()) continue;
        op.channel += first;
        end = std::max(end, op.channel + 1);
      }
    }
  }
  return end;
}

std::string location(int rank, int lane, int index) {
  return fmt::format("rank {}, lane {}, op {}", rank, lane, index);
}

std::string describe(const Op& op) {
  std::string text = fmt::format("{} of {}", to_string(op.kind), op.is_signal() ? "a signal about chunk" : "chunk");
  text += op.count <= 1 ? fmt::format(" {}", op.chunk) : fmt::format("s {} to {}", op.chunk, op.chunk + op.count - 1);
  if (op.receives()) text += fmt::format(" from rank {}", op.from);
  if (op.sends()) text += fmt::format(" to rank {}", op.to);
  if (op.channel != 0) text += fmt::format(" on channel {}", op.channel);
  return text;
}

void validate(const Schedule& schedule) {
  const auto in_range = [](const char* name, int value, int min, int max) {
    if (value < min || value > max) throw Error(fmt::format("\"{}\" is {}, not {} to {}", name, value, min, max));
  };
  in_range("nodes", schedule.nodes(), 1, kNodesMax);
  in_range("chunks", schedule.chunks, 1, kChunksMax);
  in_range("workers", schedule.workers, 1, schedule.nodes());
  in_range("root", schedule.root, 0, schedule.workers - 1);
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    const auto& lanes = schedule.ranks[static_cast<std::size_t>(rank)].lanes;
    if (lanes.size() > kLanesMax) refuse(fmt::format("rank {}", rank), fmt::format("more than {} lanes", kLanesMax));
    for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
      const Lane& ops = lanes[static_cast<std::size_t>(lane)];
      for (int index = 0; index < static_cast<int>(ops.size()); ++index) {
        validate_op(schedule, rank, {lane, index}, ops[static_cast<std::size_t>(index)]);
      }
    }
  }
}

}  // namespace param_sync::schedule
