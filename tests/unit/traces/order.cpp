#include "order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>

namespace traces_test {
namespace {

using namespace param_sync::schedule;

/// The lines of an op: numbers of GoalOps, or -1.
struct Lines {
  int recv = -1, calc = -1, send = -1;
  int first() const {
    if (recv >= 0) return recv;
    return calc >= 0 ? calc : send;
  }
};

/// By lane and op. Throws std::runtime_error if the lines are not those of the ops.
std::vector<std::vector<Lines>> lines_of(const GoalRank& goal, const Rank& rank) {
  std::size_t next = 0;
  const auto take = [&](const std::string& what, int peer) {
    if (next == goal.size() || goal[next].what != what || (peer != kNobody && goal[next].peer != peer))
      throw std::runtime_error(fmt::format("op {} is no {}", next + 1, what));
    return static_cast<int>(next++);
  };
  std::vector<std::vector<Lines>> lines;
  for (const Lane& lane : rank.lanes) {
    lines.emplace_back();
    for (const Op& op : lane) {
      Lines& of_op = lines.back().emplace_back();
      if (op.receives()) of_op.recv = take("recv", op.from);
      if (op.reduces() || op.kind == Kind::apply) of_op.calc = take("calc", kNobody);
      if (op.sends()) of_op.send = take("send", op.to);
    }
  }
  if (next > 0 && next != goal.size()) throw std::runtime_error(fmt::format("op {} is of no op", next + 1));
  return lines;
}

/// What is known to have happened when an op starts: of each op of the rank, whether it has started, and ended.
class Past {
 public:
  Past(const GoalRank& goal, std::size_t op) : goal_(goal), started_(goal.size()), ended_(goal.size()) { look_at(op); }
  bool has_started(int op) const { return started_[static_cast<std::size_t>(op)]; }
  bool has_ended(int op) const { return ended_[static_cast<std::size_t>(op)]; }

 private:
  void look_at(std::size_t op) {
    for (const std::size_t before : goal_[op].started) add(before);
    for (const std::size_t before : goal_[op].ended) {
      ended_[before] = true;
      add(before);
    }
  }
  void add(std::size_t op) {
    if (started_[op]) return;
    started_[op] = true;
    look_at(op);
  }

  const GoalRank& goal_;
  std::vector<bool> started_, ended_;
};

bool is_complete(const Past& past, const Lines& op) {
  if (op.send >= 0) return past.has_started(op.send);
  return past.has_ended(op.calc >= 0 ? op.calc : op.recv);
}

/// True if the op's own lines follow each other.
bool are_in_order(const GoalRank& goal, const Lines& op) {
  const auto follows = [&](int line, int before) {
    return line < 0 || before < 0 || Past(goal, static_cast<std::size_t>(line)).has_ended(before);
  };
  return follows(op.calc, op.recv) && follows(op.send, op.calc) && follows(op.send, op.recv);
}

std::uint64_t applied(std::uint64_t sum) { return 3 * sum + 1; }

/// Memory of all ranks, of numbers instead of chunks.
class Numbers : public GoalListener {
 public:
  Numbers(const std::vector<GoalRank>& goal, const Schedule& schedule) : schedule_(schedule) {
    std::mt19937_64 random(1);
    for (std::size_t rank = 0; rank < goal.size(); ++rank) {
      begin_.emplace_back();
      for (int chunk = 0; chunk < schedule.chunks; ++chunk) begin_.back().push_back(random());
      uses_.emplace_back(goal[rank].size());
      messages_.emplace_back(goal[rank].size());
      const auto lines = lines_of(goal[rank], schedule.ranks[rank]);
      for (std::size_t lane = 0; lane < lines.size(); ++lane) {
        for (std::size_t i = 0; i < lines[lane].size(); ++i) {
          const Use use{&schedule.ranks[rank].lanes[lane][i], lines[lane][i]};
          for (const int line : {use.lines.recv, use.lines.calc, use.lines.send}) {
            if (line >= 0) uses_.back()[static_cast<std::size_t>(line)] = use;
          }
        }
      }
    }
    now_ = begin_;
  }

  void started(const GoalOpAt& at) override {
    const Use& use = uses_[at.first][at.second];
    const int line = static_cast<int>(at.second);
    if (use.op == nullptr) return;  // a rank without ops
    std::vector<std::uint64_t>& memory = now_[at.first];
    if (line == use.lines.send) {
      messages_[at.first][at.second].assign(memory.begin() + use.op->chunk,
                                            memory.begin() + use.op->chunk + use.op->count);
    } else if (line == use.lines.calc) {
      for (int i = 0; i < use.op->count; ++i) {
        std::uint64_t& number = memory[static_cast<std::size_t>(use.op->chunk + i)];
        if (use.op->kind == Kind::apply) number = applied(number);
        if (use.op->reduces()) {
          const auto& arrived = messages_[at.first][static_cast<std::size_t>(use.lines.recv)];
          number += static_cast<std::size_t>(i) < arrived.size() ? arrived[static_cast<std::size_t>(i)] : 0;
        }
      }
    }
  }

  void received(const GoalOpAt& send, const GoalOpAt& recv) override {
    auto& message = messages_[recv.first][recv.second] = messages_[send.first][send.second];
    const Op& op = *uses_[recv.first][recv.second].op;
    if (!op.reduces()) std::copy(message.begin(), message.end(), now_[recv.first].begin() + op.chunk);
  }

  std::string problem() const {
    for (int rank = 0; rank < schedule_.workers; ++rank) {
      for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
        if (now_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)] != expected(chunk))
          return fmt::format("rank {}: chunk {} is wrong", rank, chunk);
      }
    }
    return "";
  }

 private:
  struct Use {
    const Op* op = nullptr;
    Lines lines;
  };

  std::uint64_t expected(int chunk) const {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < schedule_.workers; ++rank) {
      const Range own = part_of({0, schedule_.chunks}, rank, schedule_.workers);
      if (schedule_.result == Result::all_gather && (chunk < own.begin || chunk >= own.end)) continue;
      sum += begin_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
    }
    return schedule_.result == Result::parameter_server ? applied(sum) : sum;
  }

  const Schedule& schedule_;
  std::vector<std::vector<std::uint64_t>> begin_, now_;            // by rank and chunk
  std::vector<std::vector<Use>> uses_;                             // by rank and line
  std::vector<std::vector<std::vector<std::uint64_t>>> messages_;  // by rank and line: what it sends, or has received
};

}  // namespace

std::string problem_of_order(const std::vector<GoalRank>& goal, const Schedule& schedule) {
  for (std::size_t rank = 0; rank < goal.size(); ++rank) {
    const auto& lanes = schedule.ranks[rank].lanes;
    const auto lines = lines_of(goal[rank], schedule.ranks[rank]);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t i = 0; i < lanes[lane].size(); ++i) {
        const std::string where = location(static_cast<int>(rank), static_cast<int>(lane), static_cast<int>(i));
        if (!are_in_order(goal[rank], lines[lane][i])) return where + ": its lines are in no order";
        const Past past(goal[rank], static_cast<std::size_t>(lines[lane][i].first()));
        if (i > 0 && !is_complete(past, lines[lane][i - 1])) return where + ": does not wait for its lane";
        for (const OpRef& before : lanes[lane][i].after) {
          const auto& waited = lines[static_cast<std::size_t>(before.lane)][static_cast<std::size_t>(before.index)];
          if (!is_complete(past, waited)) return fmt::format("{}: does not wait for lane {}", where, before.lane);
        }
      }
    }
  }
  return "";
}

std::string problem_of_result(const std::vector<GoalRank>& goal, const Schedule& schedule, Ends ends, unsigned seed) {
  Numbers numbers(goal, schedule);
  const GoalRun run = run_goal(goal, ends, seed, numbers);
  return run.fault.empty() ? numbers.problem() : run.fault;
}

}  // namespace traces_test
