#include "param_sync/schedule/check.hpp"

#include "param_sync/schedule/check_price.hpp"
#include "param_sync/schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace param_sync::schedule {
namespace {

/// The number of ops of each lane that are known to be complete: a vector clock.
using Clock = std::vector<std::uint32_t>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

/// An op of any rank. `lane` is a number across the lanes of all ranks.
struct OpId {
  int lane = kNobody;
  int index = 0;
  bool operator==(const OpId&) const = default;
};

/// A chunk in flight, in a ring that holds one chunk.
struct Unit {
  OpId sender;
  int chunk = 0;
  int depth = 0;
  Symbols::Value value;
};

struct Channel {
  int from = 0;
  int to = 0;
  std::optional<Unit> unit;
  Clock clock;  ///< clock of the last message's op, set when it sends the first chunk
  Clock ended;  ///< `past` of that op, set when it sends the last chunk
  OpId sender;  ///< last op that sent on the channel
  OpId receiver;
  std::vector<int> waiting;  ///< lanes that wait for the unit to arrive or to be taken
  std::uint64_t messages = 0;
  std::uint64_t chunks = 0;
};

struct LaneState {
  int rank = 0;
  int lane = 0;
  const Lane* ops = nullptr;
  std::vector<int> in;                    ///< the channel on which each op receives, or kNobody
  std::vector<int> out;                   ///< the channel on which each op sends, or kNobody
  std::vector<int> awaited;               ///< by op: its index in CheckedRun::awaited_, or kNobody
  int index = 0;                          ///< the current op
  bool started = false;                   ///< true if the current op no longer waits for its `after`
  std::size_t passed = 0;                 ///< entries of its `after` that are complete
  int done = 0;                           ///< chunks of the current op that are done
  std::optional<Symbols::Value> passing;  ///< a chunk that was received and not yet forwarded
  int depth = 0;
  Clock clock;  ///< ops that the current op follows chunk by chunk: they have used the chunks that it uses
  Clock past;   ///< the complete ones of these: they no longer use their channels

  bool ended() const { return index == static_cast<int>(ops->size()); }
  bool at_last_chunk() const { return done + 1 >= op().count; }  ///< also true for a signal, which has no chunks
  const Op& op() const { return (*ops)[static_cast<std::size_t>(index)]; }
  int in_channel() const { return in[static_cast<std::size_t>(index)]; }
  int out_channel() const { return out[static_cast<std::size_t>(index)]; }
};

/// Which ops have used a chunk of a rank since it was last written.
struct Uses {
  OpId write;
  std::vector<OpId> reads;
};

/// The state of a complete op, for the ops that name it in their `after`.
struct Completed {
  Clock clock;
  Clock past;
  int depth = 0;
  std::vector<int> waiting;  ///< lanes that wait for the op to complete
};

/// The levels at which a rank sends, or at which it adds. A level is the messages of one depth.
class Levels {
 public:
  void add(int level) {
    if (levels_.empty() || levels_.back() != level) levels_.push_back(level);
  }
  int count() {
    std::sort(levels_.begin(), levels_.end());
    return static_cast<int>(std::unique(levels_.begin(), levels_.end()) - levels_.begin());
  }

 private:
  std::vector<int> levels_;  // may have duplicates
};

/// Thrown if the clocks know no order between two ops.
struct NoOrder : Error {
  using Error::Error;
};

/// One run of a schedule. One is enough: lanes and channels are deterministic, so all runs have the same messages and
/// the same order between ops.
class CheckedRun {
 public:
  CheckedRun(const Schedule& schedule, Known known);
  Counts run();

 private:
  template <class Problem = Error>
  [[noreturn]] void refuse(const LaneState& lane, const std::string& why) const {
    throw Problem(fmt::format("{}, {}: {}", location(lane.rank, lane.lane, lane.index), describe(lane.op()), why));
  }
  std::string name(const OpId& id) const {
    const LaneState& lane = lanes_[static_cast<std::size_t>(id.lane)];
    return location(lane.rank, lane.lane, id.index);
  }
  /// A lane's index in a clock.
  std::size_t in_clock(int lane) const {
    return static_cast<std::size_t>(known_ == Known::across_ranks ? lane : lanes_[static_cast<std::size_t>(lane)].lane);
  }
  /// True if op `id` is complete by this clock, or `id` is no op. The op must be of the rank whose lane has the clock.
  bool knows(const Clock& clock, const OpId& id) const {
    return id.lane == kNobody || clock[in_clock(id.lane)] > static_cast<std::uint32_t>(id.index);
  }
  OpId self(const LaneState& lane) const { return {static_cast<int>(&lane - lanes_.data()), lane.index}; }
  int flat(int rank, int lane) const { return first_lane_[static_cast<std::size_t>(rank)] + lane; }
  Work& work(const LaneState& lane) { return counts_.ranks[static_cast<std::size_t>(lane.rank)]; }

  int channel(int from, int to, int number);
  void wake(std::vector<int>& waiting);
  void advance(int lane_id);
  bool start(LaneState& lane);
  bool step(LaneState& lane);
  bool step_receiving(LaneState& lane);
  bool step_sending(LaneState& lane, const Symbols::Value& value);
  void take(LaneState& lane, const Unit& unit);
  Completed& completed(int rank, const OpRef& op);
  void complete(LaneState& lane);
  void read(const LaneState& lane, int chunk);
  void write(const LaneState& lane, int chunk);
  void require_order(const LaneState& lane, int chunk, const OpId& other) const;
  void require_channel_order(const LaneState& lane, const OpId& last, const char* what) const;
  [[noreturn]] void refuse_deadlock() const;

  const Schedule& schedule_;
  Known known_;
  Symbols symbols_;
  std::vector<int> first_lane_;  // by rank
  std::vector<LaneState> lanes_;
  std::vector<Channel> channels_;
  std::map<std::tuple<int, int, int>, int> channel_ids_;
  std::vector<Uses> uses_;          // by rank and chunk
  std::vector<Completed> awaited_;  // ops that an `after` names
  std::vector<int> ready_;
  std::vector<Levels> sending_levels_, reducing_levels_;  // by rank
  Counts counts_;
};

CheckedRun::CheckedRun(const Schedule& schedule, Known known) : schedule_(schedule), known_(known), symbols_(schedule) {
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    first_lane_.push_back(static_cast<int>(lanes_.size()));
    const auto& lanes = schedule.ranks[static_cast<std::size_t>(rank)].lanes;
    for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
      LaneState state;
      state.rank = rank;
      state.lane = lane;
      state.ops = &lanes[static_cast<std::size_t>(lane)];
      for (const Op& op : *state.ops) {
        state.in.push_back(op.receives() ? channel(op.from, rank, op.channel) : kNobody);
        state.out.push_back(op.sends() ? channel(rank, op.to, op.channel) : kNobody);
      }
      state.awaited.resize(state.ops->size(), kNobody);
      lanes_.push_back(std::move(state));
    }
  }
  int awaited = 0;
  for (LaneState& lane : lanes_) {
    const std::size_t size = known == Known::across_ranks
                                 ? lanes_.size()
                                 : schedule.ranks[static_cast<std::size_t>(lane.rank)].lanes.size();
    lane.clock.resize(size);
    lane.past.resize(size);
    for (const Op& op : *lane.ops) {
      for (const OpRef& before : op.after) {
        int& number = lanes_[static_cast<std::size_t>(flat(lane.rank, before.lane))]
                          .awaited[static_cast<std::size_t>(before.index)];
        if (number == kNobody) number = awaited++;
      }
    }
  }
  awaited_.resize(static_cast<std::size_t>(awaited));
  uses_.resize(static_cast<std::size_t>(schedule.nodes()) * static_cast<std::size_t>(schedule.chunks));
  counts_.ranks.resize(schedule.ranks.size());
  sending_levels_.resize(schedule.ranks.size());
  reducing_levels_.resize(schedule.ranks.size());
}

int CheckedRun::channel(int from, int to, int number) {
  const auto [found, is_new] = channel_ids_.try_emplace({from, to, number}, static_cast<int>(channels_.size()));
  if (is_new) {
    Channel made;
    made.from = from;
    made.to = to;
    channels_.push_back(std::move(made));
  }
  return found->second;
}

void CheckedRun::wake(std::vector<int>& waiting) {
  ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

void CheckedRun::require_order(const LaneState& lane, int chunk, const OpId& other) const {
  if (knows(lane.clock, other) || other == self(lane)) return;
  refuse<NoOrder>(lane, fmt::format("nothing orders it and {}, which uses chunk {} too: give one of them an \"after\"",
                                    name(other), chunk));
}

void CheckedRun::require_channel_order(const LaneState& lane, const OpId& last, const char* what) const {
  if (knows(lane.past, last) || last == self(lane)) return;
  refuse<NoOrder>(lane, fmt::format("nothing orders it and {}, which {} on the same channel", name(last), what));
}

void CheckedRun::read(const LaneState& lane, int chunk) {
  if (symbols_.state(lane.rank, chunk) == Symbols::State::undefined) {
    refuse(lane, fmt::format("chunk {} holds no data yet", chunk));
  }
  Uses& uses = uses_[static_cast<std::size_t>(lane.rank) * static_cast<std::size_t>(schedule_.chunks) +
                     static_cast<std::size_t>(chunk)];
  require_order(lane, chunk, uses.write);
  for (OpId& reader : uses.reads) {
    if (reader.lane != self(lane).lane) continue;
    reader = self(lane);  // an op that comes after it also comes after the earlier ops of its lane
    return;
  }
  uses.reads.push_back(self(lane));
}

void CheckedRun::write(const LaneState& lane, int chunk) {
  Uses& uses = uses_[static_cast<std::size_t>(lane.rank) * static_cast<std::size_t>(schedule_.chunks) +
                     static_cast<std::size_t>(chunk)];
  require_order(lane, chunk, uses.write);
  for (const OpId& reader : uses.reads) require_order(lane, chunk, reader);
  uses.reads.clear();
  uses.write = self(lane);
}

/// Stores a chunk that has arrived: it replaces the rank's chunk or is added to it.
void CheckedRun::take(LaneState& lane, const Unit& unit) {
  const Op& op = lane.op();
  Work& counted = work(lane);
  ++counted.received;
  ++counted.writes;
  if (op.reduces()) {
    if (unit.value.state == Symbols::State::applied ||
        symbols_.state(lane.rank, unit.chunk) == Symbols::State::applied) {
      refuse(lane, fmt::format("adds weights to chunk {}: the optimizer was applied to them", unit.chunk));
    }
    read(lane, unit.chunk);
    ++counted.reduced;
    ++counted.reads;
    write(lane, unit.chunk);
    symbols_.add(lane.rank, unit.chunk, unit.value);
  } else {
    write(lane, unit.chunk);
    symbols_.set(lane.rank, unit.chunk, unit.value);
  }
}

bool CheckedRun::step_receiving(LaneState& lane) {
  Channel& in = channels_[static_cast<std::size_t>(lane.in_channel())];
  if (!in.unit) {
    in.waiting.push_back(self(lane).lane);
    return false;
  }
  const Op& op = lane.op();
  const Op& sender =
      (*lanes_[static_cast<std::size_t>(in.unit->sender.lane)].ops)[static_cast<std::size_t>(in.unit->sender.index)];
  if (sender.chunk != op.chunk || sender.count != op.count || in.unit->chunk != op.chunk + lane.done) {
    refuse(lane, fmt::format("the message that comes is that of {}, {}", name(in.unit->sender), describe(sender)));
  }
  require_channel_order(lane, in.receiver, "receives");
  in.receiver = self(lane);
  lane.depth = std::max(lane.depth, in.unit->depth + 1);
  if (lane.done == 0) {
    if (known_ == Known::across_ranks) join(lane.clock, in.clock);
    if (op.reduces()) {
      ++work(lane).messages_reduced;
      reducing_levels_[static_cast<std::size_t>(lane.rank)].add(lane.depth);
    }
  }
  if (lane.at_last_chunk() && known_ == Known::across_ranks) join(lane.past, in.ended);
  if (!op.is_signal()) take(lane, *in.unit);
  if (op.sends()) lane.passing = symbols_.get(lane.rank, in.unit->chunk);
  in.unit.reset();
  wake(in.waiting);
  return true;
}

bool CheckedRun::step_sending(LaneState& lane, const Symbols::Value& value) {
  Channel& out = channels_[static_cast<std::size_t>(lane.out_channel())];
  if (out.unit) {
    out.waiting.push_back(self(lane).lane);
    return false;
  }
  require_channel_order(lane, out.sender, "sends");
  if (lane.done == 0) {
    if (known_ == Known::across_ranks) {
      out.clock = lane.clock;
      ++out.clock[in_clock(self(lane).lane)];  // a lane that gets the message may rely on this op
    }
    ++out.messages;
    sending_levels_[static_cast<std::size_t>(lane.rank)].add(lane.depth);
  }
  if (lane.at_last_chunk() && known_ == Known::across_ranks) {
    out.ended = lane.past;
    ++out.ended[in_clock(self(lane).lane)];  // the op has sent, so it has also received, all chunks
  }
  out.sender = self(lane);
  out.unit = Unit{self(lane), lane.op().chunk + lane.done, lane.depth, value};
  if (!lane.op().is_signal()) {
    ++out.chunks;
    ++work(lane).sent;
  }
  wake(out.waiting);
  return true;
}

/// Does one chunk of the lane's op. (If the op forwards, one call receives the chunk and the next one sends it.) False
/// if the lane has to wait.
bool CheckedRun::step(LaneState& lane) {
  const Op& op = lane.op();
  const int chunk = op.chunk + lane.done;
  if (op.kind == Kind::apply) {
    read(lane, chunk);
    const std::string problem = symbols_.problem_of_sum(lane.rank, chunk, 0, schedule_.workers - 1);
    if (!problem.empty()) refuse(lane, fmt::format("chunk {} {}", chunk, problem));
    if (symbols_.state(lane.rank, chunk) == Symbols::State::applied) refuse(lane, "the optimizer was applied already");
    write(lane, chunk);
    symbols_.apply(lane.rank, chunk);
    ++work(lane).reads;
    ++work(lane).writes;
  } else if (op.kind == Kind::send && op.is_signal()) {
    if (!step_sending(lane, {})) return false;
  } else if (op.kind == Kind::send) {
    read(lane, chunk);
    if (!step_sending(lane, symbols_.get(lane.rank, chunk))) return false;
    ++work(lane).reads;
  } else if (lane.passing) {
    if (!step_sending(lane, *lane.passing)) return false;
    lane.passing.reset();
  } else {
    if (!step_receiving(lane)) return false;
    if (op.sends()) return true;
  }
  if (lane.at_last_chunk()) {
    complete(lane);
  } else {
    ++lane.done;
  }
  return true;
}

void CheckedRun::complete(LaneState& lane) {
  const OpId id = self(lane);
  ++lane.index;
  lane.started = false;
  lane.done = 0;
  ++lane.clock[in_clock(id.lane)];
  ++lane.past[in_clock(id.lane)];
  counts_.depth = std::max(counts_.depth, lane.depth);
  const int awaited = lane.awaited[static_cast<std::size_t>(id.index)];
  if (awaited == kNobody) return;
  Completed& left = awaited_[static_cast<std::size_t>(awaited)];
  left.clock = lane.clock;
  left.past = lane.past;
  left.depth = lane.depth;
  wake(left.waiting);
}

/// Returns the entry in awaited_ of an op that an `after` names.
Completed& CheckedRun::completed(int rank, const OpRef& op) {
  const LaneState& lane = lanes_[static_cast<std::size_t>(flat(rank, op.lane))];
  return awaited_[static_cast<std::size_t>(lane.awaited[static_cast<std::size_t>(op.index)])];
}

/// True if all ops in the `after` of the lane's next op are complete.
bool CheckedRun::start(LaneState& lane) {
  for (; lane.passed < lane.op().after.size(); ++lane.passed) {
    const OpRef& before = lane.op().after[lane.passed];
    Completed& op = completed(lane.rank, before);
    if (lanes_[static_cast<std::size_t>(flat(lane.rank, before.lane))].index <= before.index) {
      op.waiting.push_back(self(lane).lane);
      return false;
    }
    join(lane.clock, op.clock);
    join(lane.past, op.past);
    lane.depth = std::max(lane.depth, op.depth);
  }
  lane.passed = 0;
  return true;
}

void CheckedRun::advance(int lane_id) {
  LaneState& lane = lanes_[static_cast<std::size_t>(lane_id)];
  while (!lane.ended()) {
    if (!lane.started && !start(lane)) return;
    lane.started = true;
    if (!step(lane)) return;
  }
}

void CheckedRun::refuse_deadlock() const {
  constexpr int kNamedMax = 8;
  std::string text = "it does not end where rings hold one chunk; waiting are:";
  int waiting = 0;
  for (const LaneState& lane : lanes_) {
    if (lane.ended() || ++waiting > kNamedMax) continue;
    const char* what = !lane.started                                  ? "for an op of its \"after\""
                       : lane.op().kind == Kind::send || lane.passing ? "for room in the ring"
                                                                      : "for a message";
    text += fmt::format("\n  {}: {} waits {}", location(lane.rank, lane.lane, lane.index), describe(lane.op()), what);
  }
  if (waiting > kNamedMax) text += fmt::format("\n  and {} lanes more", waiting - kNamedMax);
  throw Error(text);
}

Counts CheckedRun::run() {
  ready_.resize(lanes_.size());
  std::iota(ready_.rbegin(), ready_.rend(), 0);
  while (!ready_.empty()) {
    const int lane = ready_.back();
    ready_.pop_back();
    advance(lane);
  }
  if (!std::all_of(lanes_.begin(), lanes_.end(), [](const LaneState& lane) { return lane.ended(); })) refuse_deadlock();
  for (const Channel& channel : channels_) {
    if (channel.unit) throw Error(fmt::format("nobody receives the message of {}", name(channel.unit->sender)));
  }
  const std::string problem = problem_of_result(schedule_, symbols_);
  if (!problem.empty()) throw Error(problem);

  std::map<std::pair<int, int>, Edge> edges;
  for (const Channel& channel : channels_) {
    Edge& edge = edges[{channel.from, channel.to}];
    edge = {channel.from, channel.to, edge.messages + channel.messages, edge.chunks + channel.chunks};
  }
  for (const auto& [ends, edge] : edges) counts_.edges.push_back(edge);
  for (std::size_t rank = 0; rank < counts_.ranks.size(); ++rank) {
    counts_.ranks[rank].sending_levels = sending_levels_[rank].count();
    counts_.ranks[rank].reducing_levels = reducing_levels_[rank].count();
  }
  return std::move(counts_);
}

}  // namespace

std::uint64_t Counts::chunks_sent() const {
  std::uint64_t sum = 0;
  for (const Work& work : ranks) sum += work.sent;
  return sum;
}

std::uint64_t Counts::chunks_sent_max() const {
  std::uint64_t max = 0;
  for (const Work& work : ranks) max = std::max(max, work.sent);
  return max;
}

Counts check(const Schedule& schedule) {
  validate(schedule);
  require_affordable(price_of_check(schedule, Known::within_rank));
  try {
    return CheckedRun(schedule, Known::within_rank).run();
  } catch (const NoOrder&) {
    require_affordable(price_of_check(schedule, Known::across_ranks));
    return CheckedRun(schedule, Known::across_ranks).run();
  }
}

}  // namespace param_sync::schedule
