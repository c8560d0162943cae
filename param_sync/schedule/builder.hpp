#pragma once
/// @file Writes down a schedule op by op. A generator says what happens, in any order in which it could happen one op
/// after the other; lanes decide what may happen at once, and the builder adds each `after` that this needs.

#include "param_sync/schedule/schedule.hpp"

#include <string>
#include <vector>

namespace param_sync::schedule {

enum class Take { copy, reduce };

class Builder {
 public:
  /// `ranks`: with summation nodes, which come after the workers.
  Builder(const std::string& scheme, int ranks, int chunks, Result result = Result::all_reduce);

  void set_workers(int workers) { schedule_.workers = workers; }
  void set_root(int root) { schedule_.root = root; }

  // Each does nothing where the range is empty (then receive() returns no op). Sender and receiver name the same range
  // and channel.
  void send(int rank, int lane, int to, Range range, int channel = 0);
  OpRef receive(int rank, int lane, int from, Range range, Take take, int channel = 0);
  void receive_and_send(int rank, int lane, int from, int to, Range range, Take take, int channel = 0);
  void apply(int rank, int lane, Range range);

  /// A message without chunks, about a range: it is sent when these ops of the rank are complete.
  void signal(int rank, int lane, int to, Range about, int channel, std::vector<OpRef> after);
  void await_signal(int rank, int lane, int from, Range about, int channel);

  /// One message, sent in the sender's lane kSendLane and received in the receiver's lane kReceiveLane. Where all
  /// messages are such, no schedule waits for ever: take the first message, in the order of the calls, that is not
  /// through. All ops before its two are complete, and so both run.
  void transfer(int from, int to, Range range, Take take);

  static constexpr int kSendLane = 0;
  static constexpr int kReceiveLane = 1;

  /// The schedule, without lanes that have nothing to do.
  Schedule finish() &&;

 private:
  struct Uses {
    OpRef write{kNobody, 0};
    std::vector<OpRef> reads;  // since the write
  };
  struct RankState {
    std::vector<std::vector<std::vector<int>>> known;  // by lane and op: how many ops of each lane come before its end
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
