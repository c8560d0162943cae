#pragma once
/// @file One run of a plan, which makes its tasks.

#include "foreign/memory.hpp"
#include "foreign/plan.hpp"
#include "traces/task_lists.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace param_sync::traces {

/// A run. Its lanes are thread blocks and queues. One run is enough, because all runs of a proved plan match messages,
/// signals and packets alike.
///
/// A write into another rank's memory is a message that no step there receives: a lane beside that rank's blocks does,
/// its *arrival*. So a step that reads the data has to wait for the arrival. It learns of it by a signal, a packet or a
/// message, which may come from a third rank. So these carry `Known`: for each writer, how many of its arrivals come
/// before (a vector clock). Who receives one waits for those of them that are at its own rank.
class PlanRun {
 public:
  /// The plan must outlive it. `cell_bytes`: of a cell of the plan.
  PlanRun(const foreign::Plan& plan, std::uint64_t cell_bytes, const Load& load);

  /// Runs it to its end, and returns the tasks. Throws Error if it does not end.
  std::vector<Tasks> run();

 private:
  using Known = std::vector<std::uint32_t>;  // by writer: how many of its arrivals come before
  /// What the next task of a lane has to wait for.
  struct State {
    Waits waits;
    Known known;
  };
  struct Queued {
    const foreign::Step* step;
    State state;
  };
  struct Lane {
    int rank = 0;
    int number = 0;                         ///< Task::lane
    int writer = foreign::kNone;            ///< its index in arrivals_, if it writes into other ranks' memory
    const foreign::Block* block = nullptr;  ///< nullptr: a queue
    std::size_t step = 0;
    State now;
    int generation = foreign::kNone;     ///< the barrier's when the lane arrived
    std::map<int, State> awaited;        ///< by step that others await: the state after it
    std::map<int, std::size_t> flushed;  ///< by queue: how many of its sends the lane has waited for
    std::deque<Queued> queued;           ///< of a queue
    Waits sends;                         ///< of a queue: the ends of all its sends
  };
  struct Message {
    std::uint64_t tag;
    Known known;
  };
  struct Token {
    State state;
    bool is_remote, relaxed;
  };
  struct Counter {
    int unclaimed = 0;  ///< what it had before the first signal
    int rank = 0;       ///< where it is waited for
    std::deque<Token> tokens;
  };
  struct Barrier {
    int generation = 0;
    int arrived = 0;
    State arriving, met;
  };
  struct Arrival {
    int rank;
    TaskRef end;
  };
  struct Cell {
    int arrival = foreign::kNone;  ///< the last write, if it came from another rank: an index of last_arrivals_
    int packet = foreign::kNone;   ///< packets: the write that set the flag, an index of packets_
  };
  struct Packet {
    State state;
    bool is_remote;
  };

  void make_lanes();
  int writer_of(const foreign::Step& step, int rank, int writer);
  Lane& queue(int number) { return lanes_[plan_.blocks.size() + static_cast<std::size_t>(number)]; }
  Cell& cell(const foreign::Place& place, int unit);

  bool advance(Lane& lane);
  bool do_step(Lane& lane, const foreign::Step& step);
  bool move(Lane& lane, const foreign::Step& step);
  void signal(Lane& lane, const foreign::Step& step);
  bool wait(Lane& lane, const foreign::Step& step);
  bool meet(Lane& lane, const foreign::Step& step);
  bool await(Lane& lane, const foreign::Step& step);
  bool flush(Lane& lane, const foreign::Step& step);

  bool has_input(const foreign::Step& step);
  void take_packets(Lane& lane, const foreign::Step& step);
  TaskRef read_remote(Lane& lane, const foreign::Place& place, int count);
  TaskRef write_remote(Lane& lane, const foreign::Place& place, int count, const Waits& waits);
  void write_local(const Lane& lane, const foreign::Step& step);

  TaskRef send(Lane& lane, int to, std::uint64_t tag, std::uint64_t bytes, Waits waits);
  TaskRef compute(int rank, int lane, std::uint64_t bytes, Waits waits);
  std::uint64_t next_tag(int from, int to) { return tags_[{from, to}]++; }
  /// The lane of `rank` that takes part in what `other` does with its memory.
  int lane_beside(int rank, int other) const { return first_beside_[static_cast<std::size_t>(rank)] + other; }
  Waits arrivals_in(const foreign::Place& place, int count);
  /// Adds what another lane of the same rank has.
  void join_local(State& state, const State& other) const;
  /// Adds what another rank knows. Returns the arrivals at `rank` that are new.
  Waits learn(Known& known, int rank, const Known& others) const;
  /// Makes one wait out of many.
  void bound(Lane& lane);

  const foreign::Plan& plan_;
  std::uint64_t cell_bytes_;
  Load load_;
  TaskLists lists_;
  std::vector<Lane> lanes_;        // blocks, queues
  std::vector<int> first_beside_;  // by rank: the first lane that is neither a block nor a queue
  std::vector<std::deque<Message>> channels_;
  std::vector<Counter> counters_;
  std::vector<Barrier> barriers_;
  std::vector<std::vector<Arrival>> arrivals_;  // by writer
  std::vector<TaskRef> last_arrivals_;
  std::vector<Packet> packets_;
  foreign::Memory memory_;   // only says which places share a cell
  std::vector<Cell> cells_;  // by memory_'s index; later ones were not yet used
  std::map<std::pair<int, int>, std::uint64_t> tags_;
};

}  // namespace param_sync::traces
