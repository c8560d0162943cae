#pragma once
/// @file A schedule: which rank sends, receives and reduces which chunk, and in which order. Its file format is
/// docs/schedules.md.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace param_sync::schedule {

inline constexpr int kNodesMax = 1024;      ///< ranks of a schedule
inline constexpr int kChunksMax = 1 << 20;  ///< chunks of a tensor
inline constexpr int kLanesMax = 4096;      ///< of one rank
inline constexpr int kChannelsMax = 4096;   ///< between two ranks
inline constexpr int kNobody = -1;          ///< no rank

/// A schedule, or a topology, that is invalid. what() says where and why.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What an op does.
enum class Kind : std::uint8_t {
  send,              ///< sends the chunks to `to`
  recv,              ///< receives from `from`; replaces the chunks
  recv_reduce,       ///< receives from `from`; adds to the chunks
  recv_send,         ///< as recv, and sends the result to `to`
  recv_reduce_send,  ///< as recv_reduce, and sends the result to `to`
  apply,             ///< the owner applies the optimizer: the chunks are sums before, and weights after
};

/// What the workers have when all ranks are done. Each is described in docs/schedules.md.
enum class Result : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, parameter_server, gather };

/// True if each worker begins with its own part of the chunks, and parts are passed on as they are.
constexpr bool is_of_parts(Result result) { return result == Result::all_gather || result == Result::gather; }
/// True if chunks are passed on as they are: nothing is summed.
constexpr bool is_copied(Result result) { return is_of_parts(result) || result == Result::broadcast; }

/// An op of the same rank.
struct OpRef {
  int lane = 0;   ///< its lane
  int index = 0;  ///< its number in the lane, from 0
  /// Equal members.
  bool operator==(const OpRef&) const = default;
};

/// One step of a lane.
struct Op {
  Kind kind = Kind::send;    ///< what it does
  int chunk = 0;             ///< the first one
  int count = 1;             ///< 0: a signal
  int from = kNobody;        ///< the rank from which it receives, if it does
  int to = kNobody;          ///< the rank to which it sends, if it does
  int channel = 0;           ///< of both connections, where the op receives and sends
  std::vector<OpRef> after;  ///< ops that are complete before this one starts
  /// Equal members.
  bool operator==(const Op&) const = default;

  /// True if it waits for a message.
  bool receives() const { return kind != Kind::send && kind != Kind::apply; }
  /// True if it sends a message.
  bool sends() const { return kind == Kind::send || kind == Kind::recv_send || kind == Kind::recv_reduce_send; }
  /// True if it adds what arrives.
  bool reduces() const { return kind == Kind::recv_reduce || kind == Kind::recv_reduce_send; }
  /// True if its message carries no chunk: it only tells the receiver that the sender has got so far.
  bool is_signal() const { return count == 0; }
};

/// Ops in the order in which they run.
using Lane = std::vector<Op>;

/// The part of one rank.
struct Rank {
  std::vector<Lane> lanes;  ///< run side by side
  /// Equal lanes.
  bool operator==(const Rank&) const = default;
};

/// The ops of all ranks, for one exchange of a tensor.
struct Schedule {
  std::string scheme;                  ///< the name of the scheme that made it, or any other
  int chunks = 1;                      ///< of the tensor: runs of neighbouring floats
  Result result = Result::all_reduce;  ///< what the workers have at the end
  int workers = 0;          ///< ranks below this one have data; those from it on only sum what workers send them
  int root = 0;             ///< of a broadcast or a gather
  std::vector<Rank> ranks;  ///< by rank
  /// Equal members.
  bool operator==(const Schedule&) const = default;

  /// How many ranks there are.
  int nodes() const { return static_cast<int>(ranks.size()); }
};

/// Chunks [begin, end).
struct Range {
  int begin = 0;  ///< the first one
  int end = 0;    ///< after the last one
  /// How many chunks.
  int count() const { return end - begin; }
};

/// The part of `range` with this index, where it is cut into `parts` of equal size: they differ by one chunk at most.
inline Range part_of(Range range, int index, int parts) {
  const std::int64_t count = range.count();
  return {range.begin + static_cast<int>(count * index / parts),
          range.begin + static_cast<int>(count * (index + 1) / parts)};
}

/// The name of a kind, as a schedule's file has it.
const char* to_string(Kind kind);
/// The name of a result, as a schedule's file has it.
const char* to_string(Result result);

/// Adds `first` to the numbers of the schedule's channels, so that they follow those of other schedules. Returns the
/// first number that is free after that: what to pass for the next schedule.
int shift_channels(Schedule& schedule, int first);

/// "rank 2, lane 0, op 3".
std::string place(int rank, int lane, int index);

/// "recv_reduce of chunks 4 to 7 from rank 1".
std::string describe(const Op& op);

/// Throws Error where a number is out of range, a peer is missing or superfluous, or `after` names no other op. What is
/// valid by itself may still be wrong as a whole: see check.hpp.
void validate(const Schedule& schedule);

}  // namespace param_sync::schedule
