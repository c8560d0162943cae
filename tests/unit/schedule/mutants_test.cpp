// The checker catches every schedule with one thing wrong. A mutant that it lets pass is right all the same: it is run
// on numbers, with lanes in many random orders.
#include "oracle.hpp"
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "param_sync/schedule/senders.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>

namespace {

using namespace param_sync::schedule;

constexpr int kRuns = 40;  // of a mutant that passes

bool passes(const Schedule& schedule) {
  try {
    check(schedule);
  } catch (const Error&) {
    return false;
  }
  return true;
}

struct Tally {
  int mutants = 0;
  int equivalent = 0;
};

/// Where an op is.
struct Location {
  std::size_t rank, lane, index;
};

/// Calls with each op's location.
void for_each_op(const Schedule& schedule, const std::function<void(const Location&, const Op&)>& call) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t lane = 0; lane < schedule.ranks[rank].lanes.size(); ++lane) {
      const Lane& ops = schedule.ranks[rank].lanes[lane];
      for (std::size_t index = 0; index < ops.size(); ++index) call({rank, lane, index}, ops[index]);
    }
  }
}

/// An op is gone, or there twice: `after` still names the ops that it named.
Schedule with_op_removed_or_doubled(const Schedule& schedule, const Location& at, bool doubled) {
  Schedule mutant = schedule;
  Lane& ops = mutant.ranks[at.rank].lanes[at.lane];
  const auto op = ops.begin() + static_cast<std::ptrdiff_t>(at.index);
  if (doubled) {
    ops.insert(op, Op(*op));
  } else {
    ops.erase(op);
  }
  for (Lane& lane : mutant.ranks[at.rank].lanes) {
    for (Op& other : lane) {
      std::erase_if(other.after, [&](const OpRef& before) {
        return !doubled && before == OpRef{static_cast<int>(at.lane), static_cast<int>(at.index)};
      });
      for (OpRef& before : other.after) {
        if (before.lane == static_cast<int>(at.lane) && before.index > static_cast<int>(at.index)) {
          before.index += doubled ? 1 : -1;
        }
      }
    }
  }
  return mutant;
}

class Mutants {
 public:
  explicit Mutants(const Schedule& schedule) : schedule_(schedule) {}

  void run() {
    ASSERT_TRUE(passes(schedule_)) << schedule_.scheme;
    for_each_op(schedule_, [&](const Location& at, const Op& op) {
      must_fail(with_op_removed_or_doubled(schedule_, at, false), at, "dropped");
      must_fail(with_op_removed_or_doubled(schedule_, at, true), at, "doubled");
      wrong_numbers(at, op);
      wrong_kinds(at, op);
      swaps(at);
      for (std::size_t i = 0; i < op.after.size(); ++i) {
        may_pass(
            changed(at, [&](Op& mutant) { mutant.after.erase(mutant.after.begin() + static_cast<std::ptrdiff_t>(i)); }),
            at, "an after removed");
      }
    });
  }

  Tally tally() const { return tally_; }

 private:
  template <class Change>
  Schedule changed(const Location& at, Change change) const {
    Schedule mutant = schedule_;
    change(mutant.ranks[at.rank].lanes[at.lane][at.index]);
    return mutant;
  }

  void wrong_numbers(const Location& at, const Op& op) {
    for (int peer = 0; peer < schedule_.nodes(); ++peer) {
      if (op.sends() && peer != op.to)
        must_fail(changed(at, [&](Op& mutant) { mutant.to = peer; }), at, "sent elsewhere");
      if (op.receives() && peer != op.from) {
        must_fail(changed(at, [&](Op& mutant) { mutant.from = peer; }), at, "received from elsewhere");
      }
    }
    for (const int shift : {-1, 1}) {
      must_fail(changed(at, [&](Op& mutant) { mutant.chunk += shift; }), at, "another chunk");
      must_fail(changed(at, [&](Op& mutant) { mutant.count += shift; }), at, "another count");
    }
    if (op.kind != Kind::apply) must_fail(changed(at, [](Op& mutant) { mutant.channel += 1; }), at, "another channel");
  }

  void wrong_kinds(const Location& at, const Op& op) {
    for (int kind = 0; kind <= static_cast<int>(Kind::apply); ++kind) {
      if (op.kind == static_cast<Kind>(kind)) continue;
      const auto turn = [&](Op& mutant) {
        mutant.kind = static_cast<Kind>(kind);
        const int peer = op.from != kNobody ? op.from
                         : op.to != kNobody ? op.to
                                            : (static_cast<int>(at.rank) + 1) % schedule_.nodes();
        mutant.from = !mutant.receives() ? kNobody : op.from != kNobody ? op.from : peer;
        mutant.to = !mutant.sends() ? kNobody : op.to != kNobody ? op.to : peer;
      };
      must_fail(changed(at, turn), at, "another kind");
    }
  }

  void swaps(const Location& at) {
    const std::size_t ops = schedule_.ranks[at.rank].lanes[at.lane].size();
    for (std::size_t other = at.index + 1; other < ops; ++other) {
      Schedule mutant = schedule_;
      Lane& lane = mutant.ranks[at.rank].lanes[at.lane];
      std::swap(lane[at.index], lane[other]);
      may_pass(mutant, at, "swapped with op " + std::to_string(other));
    }
  }

  void must_fail(const Schedule& mutant, const Location& at, const std::string& what) {
    ++tally_.mutants;
    EXPECT_FALSE(passes(mutant)) << name(at) << " " << what;
  }

  void may_pass(const Schedule& mutant, const Location& at, const std::string& what) {
    ++tally_.mutants;
    if (!passes(mutant)) return;
    ++tally_.equivalent;
    EXPECT_EQ(schedule_test::problem_of_runs(mutant, kRuns), "") << name(at) << " " << what;
  }

  std::string name(const Location& at) const {
    return schedule_.scheme + ", " +
           location(static_cast<int>(at.rank), static_cast<int>(at.lane), static_cast<int>(at.index));
  }

  Schedule schedule_;
  Tally tally_;
};

/// Three nodes, and a power of two where that makes another schedule; with SCHEDULE_TEST_ALL set, 2 to 6.
std::vector<int> nodes_for(const std::string& scheme) {
  if (std::getenv("SCHEDULE_TEST_ALL") != nullptr) return {2, 3, 4, 5, 6};
  const std::set<std::string> few{"ps", "rhd", "butterfly", "byteps", "tree:binary"};
  if (schedule_test::kFew) return few.contains(scheme) ? std::vector<int>{3} : std::vector<int>{};
  return {3, scheme == "rhd" || scheme == "hierarchical" ? 4 : 2};
}

TEST(Mutants, AllAreCaughtOrRight) {
  Tally all;
  for (const std::string& scheme : scheme_names()) {
    for (const int nodes : nodes_for(scheme)) {
      const Topology topology = schedule_test::full_topology(nodes);
      Request request;
      request.nodes = nodes;
      request.chunks = scheme == "butterfly" ? 2 : scheme == "byteps" ? nodes + 2 : 2 * nodes;
      request.group_size = 2;
      request.stripes = 2;
      request.summation_nodes = 1;
      request.topology = &topology;
      Mutants mutants(generate(scheme, request));
      mutants.run();
      all.mutants += mutants.tally().mutants;
      all.equivalent += mutants.tally().equivalent;
    }
  }
  RecordProperty("mutants", all.mutants);
  RecordProperty("equivalent", all.equivalent);
  EXPECT_GT(all.mutants, schedule_test::kFew ? 500 : 5000);
  EXPECT_GT(all.equivalent, 0);  // two sums in another order are a sum
  EXPECT_LT(all.equivalent, all.mutants / 4);
  std::cout << all.mutants << " mutants, " << all.equivalent << " of them equivalent\n";
}

/// The same with signals; and each that says when a worker may push is needed.
TEST(Mutants, AllGrantsAreNeeded) {
  Request request;
  request.nodes = 3;
  request.credits = 1;
  const Schedule schedule = generate("ps:even", request);
  Mutants mutants(schedule);
  mutants.run();
  int grants = 0;
  ASSERT_EQ(senders_at_once(schedule), 1);
  for_each_op(schedule, [&](const Location& at, const Op& op) {
    if (!op.is_signal() || op.after.empty()) return;
    ++grants;
    Schedule mutant = schedule;
    mutant.ranks[at.rank].lanes[at.lane][at.index].after.clear();
    EXPECT_TRUE(passes(mutant));
    EXPECT_EQ(senders_at_once(mutant), 2) << location(int(at.rank), int(at.lane), int(at.index));
  });
  EXPECT_EQ(grants, 3);
}

/// What passes is right in any order of lanes, and what the oracle finds wrong does not pass.
TEST(Mutants, TheOracleItselfFindsWhatIsWrong) {
  Request request;
  request.nodes = 4;
  for (const char* scheme : {"ps", "ring", "rhd", "tree:binary"}) {
    const Schedule schedule = generate(scheme, request);
    EXPECT_EQ(schedule_test::problem_of_runs(schedule, kRuns), "") << scheme;
    Schedule mutant = schedule;
    for (Lane& lane : mutant.ranks[1].lanes) {
      for (Op& op : lane) {
        if (op.kind == Kind::recv_reduce) op.kind = Kind::recv;
        if (op.kind == Kind::recv_reduce_send) op.kind = Kind::recv_send;
      }
    }
    EXPECT_NE(schedule_test::problem_of_runs(mutant, 1), "") << scheme;
  }
}

}  // namespace
