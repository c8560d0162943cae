#pragma once
/// @file Builds a schedule op by op. A generator adds the ops in any order in which they could run one by one. Lanes
/// decide which ops may run at the same time, and the builder adds each `after` that this needs.

#include "param_sync/schedule/schedule.hpp"

#include <string>
#include <vector>

namespace param_sync::schedule {

enum class Take { copy, reduce };

class Builder {
 public:
  /// The number `ranks` includes summation nodes, which come after the workers.
  Builder(const std::string& scheme, int ranks, int chunks, Result result = Result::all_reduce);

  void set_workers(int workers) { schedule_.workers = workers; }
  void set_root(int root) { schedule_.root = root; }

  // Each call does nothing if the range is empty; the OpRef from receive() then has lane kNobody. Sender and receiver
  // must name the same range and channel.
  void send(int rank, int lane, int to, Range range, int channel = 0);
  OpRef receive(int rank, int lane, int from, Range range, Take take, int channel = 0);
  void receive_and_send(int rank, int lane, int from, int to, Range range, Take take, int channel = 0);
  void apply(int rank, int lane, Range range);

  /// Adds a message without chunks that is about a range. It is sent when the ops `after` of the rank are complete.
  void signal(int rank, int lane, int to, Range about, int channel, std::vector<OpRef> after);
  void await_signal(int rank, int lane, int from, Range about, int channel);

  /// Adds one message, which the sender's lane kSendLane sends and the receiver's lane kReceiveLane receives. If all
  /// messages are added so, the schedule cannot deadlock: take the first message, in the order of the calls, that has
  /// not been received. All ops that were added before its two ops are complete, so both can run.
  void transfer(int from, int to, Range range, Take take);

  static constexpr int kSendLane = 0;
  static constexpr int kReceiveLane = 1;

  /// Returns the schedule, without lanes that have no ops.
  Schedule finish() &&;

 private:
  struct Uses {
    OpRef write{kNobody, 0};
    std::vector<OpRef> reads;  // since the write
  };
  struct RankState {
    std::vector<std::vector<std::vector<int>>> known;  // by lane and op: ops of each lane that are complete at its end
    std::vector<Uses> uses;                            // by chunk
  };

  OpRef add(int rank, int lane, Op op);
  OpRef append(int rank, int lane, Op op);
  RankState& state_with(int rank, int lane);
  std::vector<OpRef> needed(int rank, int lane, const Op& op);
  bool implied(const RankState& state, int lane, const OpRef& before) const;

  Schedule schedule_;
  std::vector<RankState> states_;
};

}  // namespace param_sync::schedule
