// Random schedules of workers and a server whose clock drops late pushes. An oracle that knows the rules by their
// papers judges each sum. Faults that are planted must be found.
#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/range_clocks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/seeds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace late_simulation {
namespace {

using param_sync::Backup;
using param_sync::Coded;
using param_sync::store::RangeClocks;

/// What goes wrong.
enum class Fault {
  none,
  counts_late_pushes,
  applies_twice,
  takes_pushes_without_memory,
  stays_late,   ///< a worker goes on from its own number
  answers_late  ///< a worker that waits for lost ones is never told so
};

enum class Doing { computes, pushes, is_held, pulls, is_gone, was_told };

struct Worker {
  Doing doing = Doing::computes;
  std::uint64_t version = 0;   ///< that it has, or has pushed for
  std::uint64_t parts = 0;     ///< of the push that comes
  std::uint64_t slowness = 1;  ///< it acts in one of so many turns
  bool pushes_next = false;
};

/// A push in the server's memory.
struct Kept {
  std::uint64_t version = 0;
  bool is_whole = false;
};

/// One range at its owner, and the workers.
template <class Clock>
class Simulation {
 public:
  Simulation(std::uint64_t seed, const Clock& clock, const Clock& served, int ranks, Fault fault)
      : random_(seed),
        clock_(clock),
        fault_(fault),
        workers_(static_cast<std::size_t>(ranks)),
        kept_(workers_.size()),
        received_(workers_.size()),
        contained_(workers_.size()),
        lost_(workers_.size()),
        clocks_{param_sync::store::Clock(served), received_.data(), contained_.data(), ranks} {
    for (Worker& worker : workers_) worker.slowness = 1 + random_() % (random_() % 2 == 0 ? 3 : 40);
  }

  /// Runs for some turns. Returns what the oracle objects to, or "".
  std::string run(int turns) {
    for (int turn = 0; turn < turns && objection_.empty(); ++turn) {
      if (in_grace_ && random_() % 10 == 0) apply();
      const auto index = random_() % workers_.size();
      if (random_() % workers_[index].slowness == 0) act(static_cast<int>(index));
      if (random_() % 800 == 0) lose(static_cast<int>(index));
    }
    if (objection_.empty()) look_for_the_forgotten();
    return objection_;
  }

  std::uint64_t sums() const { return version_; }
  std::uint64_t late() const { return late_; }

 private:
  static constexpr std::uint64_t kParts = 3;

  int ranks() const { return static_cast<int>(workers_.size()); }
  Worker& at(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  Kept& kept(int rank) { return kept_[static_cast<std::size_t>(rank)]; }

  void act(int rank) {
    Worker& worker = at(rank);
    switch (worker.doing) {
      case Doing::computes:
        return worker.pushes_next ? begin_push(rank) : pull(rank);
      case Doing::pushes:
        if (++worker.parts == kParts) end_push(rank);
        return;
      case Doing::is_held:
        return begin_push(rank);
      case Doing::pulls:
        return pull(rank);
      case Doing::is_gone:
      case Doing::was_told:
        return;
    }
  }

  void begin_push(int rank) {
    Worker& worker = at(rank);
    if (worker.doing == Doing::computes) {
      if (!clocks_.may_have(rank, worker.version)) objection_ = "a worker that follows the rules is refused";
      if (clocks_.may_have(rank, version_ + 2)) objection_ = "a worker may be ahead of the newest version";
      clocks_.begin_push(rank,
                         fault_ == Fault::counts_late_pushes ? std::max(worker.version, version_) : worker.version);
    }
    if (!clocks_.may_push(rank) && fault_ != Fault::takes_pushes_without_memory) {
      worker.doing = Doing::is_held;
      return tell(rank, clocks_.push_waits_for_lost(lost_.data()), "a push");
    }
    if (kept(rank).is_whole && kept(rank).version == version_) objection_ = "a push replaces one that is not applied";
    kept(rank) = {worker.version, false};
    worker.parts = 0;
    worker.doing = Doing::pushes;
  }

  void end_push(int rank) {
    Worker& worker = at(rank);
    kept(rank).is_whole = true;
    if (worker.version == version_) come_ |= std::uint64_t{1} << rank;
    if (worker.version < version_) ++late_;
    ++worker.version;
    worker.pushes_next = random_() % 4 == 0;  // sometimes two pushes without a pull between them
    worker.doing = Doing::computes;
    if (clocks_.end_push(rank)) {
      in_grace_ = clocks_.clock.grace() != 0 && !clocks_.all_have_come(lost_.data());
      if (!in_grace_) apply();
    }
    if (objection_.empty() && is_enough(come_) && !in_grace_) objection_ = "a sum waits for stragglers";
  }

  void apply() {
    const std::uint64_t summed = clocks_.summed();
    for (int rank = 0; rank < ranks(); ++rank) {
      if ((summed >> rank & 1) == 0) continue;
      if (!kept(rank).is_whole || kept(rank).version != version_) objection_ = "a sum has a push of another version";
    }
    if (!is_right(summed)) objection_ = "a sum has the wrong pushes";
    in_grace_ = false;
    clocks_.apply_all();
    if (fault_ == Fault::applies_twice && random_() % 50 == 0) clocks_.apply_all();
    ++version_;
    come_ = 0;
  }

  void pull(int rank) {
    Worker& worker = at(rank);
    worker.doing = Doing::pulls;
    if (!clocks_.may_read(rank, worker.version)) {
      if (worker.version <= version_) objection_ = "a read waits for a version that is there";
      return tell(rank, clocks_.read_waits_for_lost(rank, worker.version, lost_.data()), "a read");
    }
    if (worker.version > version_) objection_ = "a read misses its version";
    for (const std::uint64_t contained : contained_) {
      if (contained != version_) objection_ = "the server says another version than it has";
    }
    if (fault_ != Fault::stays_late) worker.version = version_;
    worker.pushes_next = true;
    worker.doing = Doing::computes;
  }

  /// A worker ends, wherever it is.
  void lose(int rank) {
    if (at(rank).doing == Doing::is_gone) return;
    at(rank).doing = Doing::is_gone;
    lost_[static_cast<std::size_t>(rank)] = ++losses_;
  }

  /// The server tells a worker that it waits for a lost one.
  void tell(int rank, int lost, const std::string& what) {
    if (lost == RangeClocks::kNobody || fault_ == Fault::answers_late) return;
    if (at(lost).doing != Doing::is_gone) objection_ = what + " is said to wait for a worker that is there";
    std::uint64_t possible = come_;
    for (int other = 0; other < ranks(); ++other) {
      if (at(other).doing != Doing::is_gone) possible |= std::uint64_t{1} << other;
    }
    if (is_enough(possible)) objection_ = what + " is given up, and enough workers are left";
    at(rank).doing = Doing::was_told;
  }

  /// Workers that are left wait for none that is gone, and are not late for ever, once they have had enough turns.
  void look_for_the_forgotten() {
    constexpr int kEnough = 200;
    constexpr std::uint64_t kLateMost = 4;
    const std::uint64_t before = version_;
    for (int turn = 0; turn < kEnough; ++turn) {
      if (in_grace_) apply();
      for (int rank = 0; rank < ranks(); ++rank) act(rank);
    }
    if (!objection_.empty()) return;
    for (const Worker& worker : workers_) {
      const bool waits = worker.doing == Doing::pulls || worker.doing == Doing::is_held;
      if (waits && version_ == before) objection_ = "a worker waits for ever";
      const bool is_left = worker.doing != Doing::is_gone && worker.doing != Doing::was_told;
      if (is_left && version_ != before && worker.version + kLateMost < version_) objection_ = "a worker stays late";
    }
  }

  // The oracle. It knows the rules by their papers, not by their code.

  /// The first so many pushes of a version end it, by Chen et al.; or one of each group, by Tandon et al.
  bool is_enough(std::uint64_t come) const {
    if constexpr (requires { clock_.backups; }) {
      return static_cast<std::uint64_t>(std::popcount(come)) >= workers_.size() - clock_.backups;
    } else {
      for (std::size_t group = 0; group < workers_.size() / (clock_.stragglers + 1); ++group) {
        if (of_group(come, group) == 0) return false;
      }
      return true;
    }
  }
  bool is_right(std::uint64_t summed) const {
    if ((summed & ~come_) != 0) return false;
    if constexpr (requires { clock_.backups; }) {
      const std::uint64_t more = std::popcount(summed) - (workers_.size() - clock_.backups);
      return summed == come_ && (clock_.grace_ns == 0 ? more == 0 : more <= clock_.backups);
    } else {
      for (std::size_t group = 0; group < workers_.size() / (clock_.stragglers + 1); ++group) {
        if (of_group(summed, group) != 1) return false;
      }
      return true;
    }
  }
  int of_group(std::uint64_t ranks, std::size_t group) const {
    const std::uint64_t size = clock_.stragglers + 1;
    return std::popcount(ranks >> group * size & ((std::uint64_t{1} << size) - 1));
  }

  std::mt19937_64 random_;
  Clock clock_;
  Fault fault_;
  std::vector<Worker> workers_;
  std::vector<Kept> kept_;  // by rank: what the server's memory has
  std::vector<std::uint64_t> received_, contained_;
  std::vector<std::uint32_t> lost_;
  RangeClocks clocks_;
  std::uint64_t version_ = 0;  // sums that were applied
  bool in_grace_ = false;      // enough pushes have come, and the server waits for others
  std::uint64_t come_ = 0;     // ranks whose push of the next version has come
  std::uint32_t losses_ = 0;
  std::uint64_t late_ = 0;
  std::string objection_;
};

constexpr int kTurns = 400;

template <class Clock>
void run_without_objection(const Clock& clock, int ranks) {
  const auto [first, last] = gpusock::seeds_or({1, gpusock::kThreadSanitized ? 1'000 : 15'000});
  std::uint64_t sums = 0, late = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation<Clock> simulation(seed, clock, clock, ranks, Fault::none);
    const std::string objection = simulation.run(kTurns);
    EXPECT_EQ(objection, "") << "GPUSOCK_TEST_SEEDS=" << seed << " runs it again, " << ranks << " ranks";
    if (!objection.empty()) return;
    sums += simulation.sums();
    late += simulation.late();
  }
  const std::uint64_t count = last - first + 1;
  if (count < 100) return;
  EXPECT_GT(sums, 5 * count);
  EXPECT_GT(late, count / 2);
}

TEST(LateSimulation, SumsHaveTheRightPushes) {
  run_without_objection(Backup{1}, 3);
  run_without_objection(Backup{2}, 5);
  run_without_objection(Backup{2, 1}, 5);
  run_without_objection(Coded{1}, 4);
  run_without_objection(Coded{2}, 6);
}

/// The first seed with an objection, or 0.
template <class Clock>
std::uint64_t found(const Clock& clock, const Clock& served, Fault fault) {
  constexpr std::uint64_t kSeedsOfFault = 200;
  for (std::uint64_t seed = 1; seed <= kSeedsOfFault; ++seed) {
    if (!Simulation<Clock>(seed, clock, served, 4, fault).run(kTurns).empty()) return seed;
  }
  return 0;
}

TEST(LateSimulation, FindsFaultsThatArePlanted) {
  for (const Fault fault : {Fault::counts_late_pushes, Fault::applies_twice, Fault::takes_pushes_without_memory,
                            Fault::stays_late, Fault::answers_late}) {
    EXPECT_NE(found(Backup{1}, Backup{1}, fault), 0) << static_cast<int>(fault);
    EXPECT_NE(found(Coded{1}, Coded{1}, fault), 0) << static_cast<int>(fault);
  }
  EXPECT_NE(found(Backup{1}, Backup{0}, Fault::none), 0);
  EXPECT_NE(found(Backup{1}, Backup{2}, Fault::none), 0);
  EXPECT_NE(found(Backup{1}, Backup{1, 1}, Fault::none), 0);
  EXPECT_NE(found(Coded{1}, Coded{0}, Fault::none), 0);
  EXPECT_NE(found(Coded{1}, Coded{3}, Fault::none), 0);
}

}  // namespace
}  // namespace late_simulation
