#pragma once
/// @file One rank's part of a schedule as flat tables, which kernels read.

#include "param_sync/schedule/schedule.hpp"

#include "gpusock/types.hpp"

#include <compare>
#include <cstdint>
#include <limits>
#include <vector>

namespace param_sync::executor {

/// A connection to another rank. It carries this channel's messages in both directions.
struct Channel {
  int peer = 0;    ///< the other rank
  int number = 0;  ///< the same at both ranks (schedule::Op::channel)
  /// Orders channels by peer, then by number.
  auto operator<=>(const Channel&) const = default;
};

/// The number of the channel to a peer on which only last words go (last_words.cuh): the last one.
inline constexpr int kLastWordsChannel = std::numeric_limits<int>::max();

/// An op of a lane. `in` and `out` are indices of channels, or schedule::kNobody.
struct LaneOp {
  schedule::Kind kind = schedule::Kind::send;  ///< what it does
  int chunk = 0;                               ///< the first chunk
  int count = 0;                               ///< number of chunks; 0: a signal
  int in = schedule::kNobody;                  ///< the channel on which it receives
  int out = schedule::kNobody;                 ///< the channel on which it sends
  int after_begin = 0;                         ///< what it waits for: Program::after[after_begin, after_end)
  int after_end = 0;                           ///< see after_begin
  int reorder = kDirect;    ///< of a recv_reduce: entry of the reorder buffer for its data, or kDirect or kSums
  int operands_begin = 0;   ///< of the op that makes the sum: Program::operands[operands_begin, operands_end)
  int operands_end = 0;     ///< see operands_begin
  bool of_weights = false;  ///< true if it moves, or makes, weights that are apart

  /// True if its message carries no chunk.
  GPUSOCK_FN bool is_signal() const { return count == 0; }

  static constexpr int kDirect = -1;  ///< what arrives is added at once
  static constexpr int kSums = -2;    ///< this op's data completes a sum, and the op adds all operands
};

/// An operand of a sum of more than two ranks' data is an entry of the lane's reorder buffer, or one of these
/// constants.
inline constexpr int kOperandArriving = -1;
inline constexpr int kOperandOwn = -2;  ///< this rank's own data

/// A lane, and how many ops of a pass it has completed.
struct Reached {
  int lane = 0;  ///< the lane
  int ops = 0;   ///< how many of its ops
};

/// A lane's ops: Program::ops[begin, end).
struct LaneOps {
  int begin = 0;  ///< the first op
  int end = 0;    ///< after the last one
};

/// The ops of one rank, as kernels read them.
struct Program {
  int chunks = 1;              ///< chunks of the tensor
  std::vector<LaneOps> lanes;  ///< at least one
  std::vector<LaneOp> ops;     ///< lane after lane
  std::vector<Reached> after;  ///< for all ops: see LaneOp::after_begin
  std::vector<int> operands;   ///< for all ops, in rank order in each: see LaneOp::operands_begin
  int reorder_entries = 0;     ///< the most entries of a lane's reorder buffer
  int reorder_chunks = 0;      ///< the most chunks of an entry
  bool lanes_meet = false;     ///< true if no lane begins a pass before all lanes have ended the pass before it: two
                               ///< lanes share a direction of a channel, or signals say when another rank may send
};

/// All channels that this rank has in any of the schedules, in order.
std::vector<Channel> channels_of(const std::vector<schedule::Schedule>& schedules, int rank);

/// What the execution of a schedule guarantees beyond its result.
struct Execution {
  /// If ops of a lane that follow each other add several ranks' data to the same chunks, the lane adds in the order of
  /// ranks, this rank's data included, whatever the order in which it receives. Data that comes too early waits in a
  /// reorder buffer.
  bool rank_order = false;
  /// For a parameter server: weights are received, made and sent in their own memory, not in the gradients' memory.
  bool weights_apart = false;
};

/// Returns a rank's program. `channels`: channels_of() this and other schedules. Throws schedule::Error if weights are
/// to be apart, and an op moves weights and gradients together.
Program program_of(const schedule::Schedule& schedule, int rank, const std::vector<Channel>& channels,
                   const Execution& execution = {});

/// Floats [begin, end) of a tensor.
struct Floats {
  std::uint64_t begin = 0;  ///< the first one
  std::uint64_t end = 0;    ///< after the last one
  /// How many floats.
  GPUSOCK_FN std::uint64_t count() const { return end - begin; }
};

/// How a tensor is cut. Each chunk is a run of neighbouring floats: chunk i of C begins at float N * i / C. Each pass
/// moves the next `unit_floats` of every chunk, so that what a pass moves of a chunk fits into a ring.
struct Cut {
  std::uint64_t floats = 0;       ///< floats of the tensor
  std::uint64_t unit_floats = 1;  ///< the most floats of a chunk that a pass moves
  std::uint32_t chunks = 1;       ///< chunks of the tensor

  /// The first float of a chunk.
  GPUSOCK_FN std::uint64_t chunk_begin(std::uint32_t chunk) const { return floats * chunk / chunks; }

  /// Number of passes: at least one, so that ranks exchange messages even if the tensor is empty.
  GPUSOCK_FN std::uint64_t passes() const {
    const std::uint64_t largest = (floats + chunks - 1) / chunks;
    return largest == 0 ? 1 : (largest + unit_floats - 1) / unit_floats;
  }

  /// The floats that a pass moves of a chunk: none once the chunk has ended.
  GPUSOCK_FN Floats part(std::uint32_t chunk, std::uint64_t pass) const {
    const std::uint64_t begin = chunk_begin(chunk), end = chunk_begin(chunk + 1), length = end - begin;
    const std::uint64_t from = pass * unit_floats < length ? pass * unit_floats : length;
    const std::uint64_t to = length - from < unit_floats ? length : from + unit_floats;
    return {begin + from, begin + to};
  }
};

/// What a rank sends in a step.
struct Sent {
  std::uint64_t messages = 0;  ///< signals included
  std::uint64_t floats = 0;    ///< gradients and weights
  /// Adds messages and floats.
  Sent& operator+=(const Sent& other);
};
/// Returns what a rank sends in a step. `of_weights`: only weights that are apart, or all but these.
Sent sent_in_step(const Program& program, const Cut& cut, bool of_weights);

}  // namespace param_sync::executor
