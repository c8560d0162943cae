#pragma once
/// @file One run of a plan on symbols: what prove() is made of.

#include "foreign/memory.hpp"
#include "foreign/plan.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace param_sync::foreign {

/// Thrown if a plan is wrong. what() is the example.
class Refuted : public Error {
 public:
  using Error::Error;
};

/// Thrown if a plan does not end.
class Hang : public Refuted {
 public:
  using Refuted::Refuted;
};

/// How a plan is run.
struct Conditions {
  bool in_place = false;               ///< input and output are one buffer
  int piece = 1;                       ///< cells that travel together, if a message has so many
  int calls = 1;                       ///< how often each rank runs it, one call after the other
  bool relaxed_signals_order = false;  ///< relaxed signals order memory accesses, too
};

/// A run. Lanes are thread blocks, queues, and for each rank its caller, who writes inputs and reads outputs.
class Run {
 public:
  /// The plan must outlive it. Throws Error if the run would take too much memory or time.
  Run(const Plan& plan, const Conditions& conditions);

  /// Runs it to its end. Throws Refuted, or Error if no run shows what happens in all.
  void run();

  std::uint64_t steps() const { return steps_; }
  std::uint64_t cells() const { return cells_; }

 private:
  struct Queued {
    const Step* step;
    Clock clock;
    int call;
  };
  struct Lane {
    int rank = 0;
    const Block* block = nullptr;  ///< nullptr: a queue or a caller
    std::size_t step = 0;
    int call = 0;
    int unit = 0;             ///< cells of the step that are done
    bool is_holding = false;  ///< true if a cell is received and summed, but not yet sent
    Contents::Id held = 0;
    int generation = kNone;        ///< the barrier's when the lane arrived; kNone if it has not
    Clock clock;                   ///< what came before its next access
    Clock acquired;                ///< what its waits know, but its threads do not before they meet
    Clock released;                ///< what came before the threads met: what a signal tells
    Clock begun;                   ///< what came before the call: what a relaxed signal tells
    std::deque<Queued> queued;     ///< of a queue
    std::vector<int> waiting;      ///< lanes that wait for it
    std::map<int, Clock> awaited;  ///< by step that others await: its clock when it was done
  };
  struct Message {
    Contents::Id value;
    Clock clock;
    const Step* step;
    int lane;
    int unit;
    bool is_last;  ///< of its piece
  };
  struct Channel {
    std::deque<Message> messages;
    int pieces = 0;  ///< of which `messages` has cells
    int sender = kNone, receiver = kNone;
    std::vector<int> waiting;
  };
  struct Token {
    Clock clock, begun;
    bool relaxed;
  };
  struct CounterState {
    int value = 0;
    int unclaimed = 0;  ///< of `value`: what the counter had before the first signal
    std::deque<Token> tokens;
    Access signaller, waiter;  ///< the last ones
    std::vector<int> waiting;
  };
  struct BarrierState {
    int generation = 0;
    std::vector<int> arrived;
    Clock clock;
  };

  const Step& step_of(const Lane& lane) const;
  int number(const Lane& lane) const { return static_cast<int>(&lane - lanes_.data()); }
  std::uint32_t& own(Lane& lane) { return lane.clock[static_cast<std::size_t>(number(lane))]; }
  void wake(std::vector<int>& waiting);

  void advance(Lane& lane);
  bool do_step(Lane& lane, const Step& step);
  bool move(Lane& lane, const Step& step);
  bool receive(Lane& lane, const Step& step, Contents::Id& value);
  bool take_packets(Lane& lane, const Step& step);
  void submit(Lane& lane, const Step& step);
  void signal(Lane& lane, const Step& step);
  bool wait(Lane& lane, const Step& step);
  bool meet(Lane& lane, const Step& step);
  bool await(Lane& lane, const Step& step);
  void sync(Lane& lane);
  void end_step(Lane& lane);
  void end_call(int rank);

  bool is_before(const Lane& lane, const Step* step, int unit, const Access& access) const;
  Contents::Id read(Lane& lane, const Step* step, const Place& place, int unit);
  void write(Lane& lane, const Step* step, const Place& place, int unit, Contents::Id value);
  std::string name(const Access& access) const;
  [[noreturn]] void refuse_race(const Lane& lane, const Step* step, const Place& place, int unit, const char* does,
                                const Access& other, const char* other_does) const;
  [[noreturn]] void refuse_hang() const;
  std::string wish(const Lane& lane) const;
  int obstacle(const Lane& lane) const;
  void check_end();

  const Plan& plan_;
  Conditions conditions_;
  Memory memory_;
  Contents contents_;
  std::vector<Lane> lanes_;  // blocks, queues, callers
  std::vector<Channel> channels_;
  std::vector<CounterState> counters_;
  std::vector<BarrierState> barriers_;
  std::map<std::size_t, std::vector<int>> waiting_for_packets_;  // by cell
  std::vector<int> running_;                                     // by rank: blocks that have not ended
  std::vector<int> ready_;
  std::uint64_t steps_ = 0;
  std::uint64_t cells_ = 0;
};

}  // namespace param_sync::foreign
