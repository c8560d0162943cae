#pragma once
/// @file A schedule: which rank sends, receives and reduces which chunk, and in which order. Its file format is
/// docs/schedules.md.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace param_sync::schedule {

inline constexpr int kNodesMax = 1024;      ///< most ranks of a schedule
inline constexpr int kChunksMax = 1 << 20;  ///< most chunks of a tensor
inline constexpr int kLanesMax = 4096;      ///< most lanes of one rank
inline constexpr int kChannelsMax = 4096;   ///< most channels from one rank to another
inline constexpr int kNobody = -1;          ///< no rank

/// The error for an invalid schedule, topology or request. what() says where and why.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The kinds of ops.
enum class Kind : std::uint8_t {
  send,              ///< sends the chunks to `to`
  recv,              ///< receives from `from`; replaces the chunks
  recv_reduce,       ///< receives from `from`; adds to the chunks
  recv_send,         ///< as recv, and sends the result to `to`
  recv_reduce_send,  ///< as recv_reduce, and sends the result to `to`
  apply,             ///< the owner applies the optimizer: the chunks are sums before, and weights after
};

/// The data that workers have when all ranks are done. docs/schedules.md describes each result.
enum class Result : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, parameter_server, gather };

/// True if each worker begins with its own part of the chunks, and ranks forward parts unchanged.
constexpr bool is_of_parts(Result result) { return result == Result::all_gather || result == Result::gather; }
/// True if ranks forward chunks unchanged: nothing is summed.
constexpr bool is_copied(Result result) { return is_of_parts(result) || result == Result::broadcast; }

/// An op of the same rank.
struct OpRef {
  int lane = 0;   ///< its lane
  int index = 0;  ///< its number in the lane, from 0
  /// True if all members are equal.
  bool operator==(const OpRef&) const = default;
};

/// One step of a lane.
struct Op {
  Kind kind = Kind::send;    ///< what it does
  int chunk = 0;             ///< first chunk
  int count = 1;             ///< number of chunks; 0: a signal
  int from = kNobody;        ///< the rank from which it receives, if it receives
  int to = kNobody;          ///< the rank to which it sends, if it sends
  int channel = 0;           ///< channel number; an op that receives and sends uses it for both
  std::vector<OpRef> after;  ///< ops that must be complete before this one starts
  /// True if all members are equal.
  bool operator==(const Op&) const = default;

  /// True if it waits for a message.
  bool receives() const { return kind != Kind::send && kind != Kind::apply; }
  /// True if it sends a message.
  bool sends() const { return kind == Kind::send || kind == Kind::recv_send || kind == Kind::recv_reduce_send; }
  /// True if it adds what arrives.
  bool reduces() const { return kind == Kind::recv_reduce || kind == Kind::recv_reduce_send; }
  /// True if its message carries no chunk: it only tells the receiver that the sender has reached this op.
  bool is_signal() const { return count == 0; }
};

/// Ops in the order in which they run.
using Lane = std::vector<Op>;

/// The lanes of one rank.
struct Rank {
  std::vector<Lane> lanes;  ///< lanes that run side by side
  /// True if all lanes are equal.
  bool operator==(const Rank&) const = default;
};

/// The ops of all ranks, for one exchange of a tensor.
struct Schedule {
  std::string scheme;                  ///< the name of the scheme that made it, or any other name
  int chunks = 1;                      ///< number of chunks of the tensor; a chunk is a run of neighbouring floats
  Result result = Result::all_reduce;  ///< what the workers have at the end
  int workers = 0;          ///< ranks below this number have data; the others only sum what workers send them
  int root = 0;             ///< root rank of a broadcast or a gather
  std::vector<Rank> ranks;  ///< lanes, by rank
  /// True if all members are equal.
  bool operator==(const Schedule&) const = default;

  /// Number of ranks.
  int nodes() const { return static_cast<int>(ranks.size()); }
};

/// Chunks [begin, end).
struct Range {
  int begin = 0;  ///< first chunk
  int end = 0;    ///< one past the last chunk
  /// Number of chunks.
  int count() const { return end - begin; }
};

/// Part number `index` of `range`, which is cut into `parts` parts. Their sizes differ by at most one chunk.
inline Range part_of(Range range, int index, int parts) {
  const std::int64_t count = range.count();
  return {range.begin + static_cast<int>(count * index / parts),
          range.begin + static_cast<int>(count * (index + 1) / parts)};
}

/// The name of a kind, as a schedule's file has it.
const char* to_string(Kind kind);
/// The name of a result, as a schedule's file has it.
const char* to_string(Result result);

/// Adds `first` to the channel numbers of the schedule, so that they follow those of earlier schedules. Returns the
/// first free channel number after that: pass it as `first` for the next schedule.
int shift_channels(Schedule& schedule, int first);

/// Returns text such as "rank 2, lane 0, op 3".
std::string location(int rank, int lane, int index);

/// Returns text such as "recv_reduce of chunks 4 to 7 from rank 1".
std::string describe(const Op& op);

/// Throws Error if a number is out of range, a peer is missing or not needed, or `after` names the op itself or an op
/// that does not exist. A schedule whose ops are all valid may still be wrong as a whole: see check.hpp.
void validate(const Schedule& schedule);

}  // namespace param_sync::schedule
