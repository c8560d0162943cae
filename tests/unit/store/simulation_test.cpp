// Random schedules of workers and a server, which uses the clocks that servers use. An oracle that knows only which
// pushes the weights really contain judges each read. Faults that are planted must be found.
#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/range_clocks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/seeds.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

using param_sync::Async;
using param_sync::Bsp;
using param_sync::Ssp;
using param_sync::store::RangeClocks;

/// What the server does wrong.
enum class Fault {
  none,
  counts_before_all_has_come,
  applies_twice,
  lets_stale_reads_through,
  takes_pushes_without_memory,
  answers_late  ///< a read that waits for a lost worker is never told so
};

/// What a worker does now. A push comes in two parts, with other events between them.
enum class Doing { computes, pushes, is_held, pulls, is_gone, was_told };

struct Worker {
  Doing doing = Doing::computes;
  std::uint64_t pushes = 0;    ///< that it has made
  std::uint64_t parts = 0;     ///< of the push that comes
  std::uint64_t slowness = 1;  ///< it acts in one of so many turns
  bool pushes_next = false;
};

/// One range at its owner, and the workers.
template <class Clock>
class Simulation {
 public:
  Simulation(std::uint64_t seed, const Clock& clock, const Clock& served, Fault fault)
      : random_(seed),
        clock_(clock),
        fault_(fault),
        workers_(2 + random_() % 4),
        received_(workers_.size()),
        contained_(workers_.size()),
        lost_(workers_.size()),
        clocks_{param_sync::store::Clock(served), received_.data(), contained_.data(),
                static_cast<int>(workers_.size())} {
    applied_.resize(workers_.size());
    kept_.resize(workers_.size());
    for (Worker& worker : workers_) worker.slowness = 1 + random_() % (random_() % 2 == 0 ? 3 : 40);
  }

  /// Runs for some turns. Returns what the oracle objects to, or "".
  std::string run(int turns) {
    for (int turn = 0; turn < turns && objection_.empty(); ++turn) {
      const auto index = random_() % workers_.size();
      if (random_() % workers_[index].slowness == 0) act(static_cast<int>(index));
      if (random_() % 2'000 == 0) lose(static_cast<int>(index));
    }
    if (objection_.empty()) look_for_the_forgotten();
    return objection_;
  }

  std::uint64_t reads() const { return reads_; }

 private:
  static constexpr std::uint64_t kParts = 3;

  Worker& at(int rank) { return workers_[static_cast<std::size_t>(rank)]; }

  void act(int rank) {
    Worker& worker = at(rank);
    switch (worker.doing) {
      case Doing::computes:
        if (!worker.pushes_next) return pull(rank);
        worker.parts = 0;
        worker.doing = Doing::is_held;
        return begin_push(rank);
      case Doing::pushes:
        if (++worker.parts == 1 && fault_ == Fault::counts_before_all_has_come) count(rank);
        if (worker.parts == kParts) end_push(rank);
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
    if (clocks_.may_push(rank) || fault_ == Fault::takes_pushes_without_memory) {
      if (kept_[static_cast<std::size_t>(rank)] != 0) objection_ = "a push replaces one that is not applied";
      worker.doing = Doing::pushes;
    } else {
      tell(rank, clocks_.push_waits_for_lost(lost_.data()), "a push");
    }
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
    at(rank).doing = Doing::was_told;
  }

  /// Workers that are left wait for none that is gone, once they have had enough turns.
  void look_for_the_forgotten() {
    constexpr int kEnough = 100;
    for (int turn = 0; turn < kEnough; ++turn) {
      for (std::size_t rank = 0; rank < workers_.size(); ++rank) act(static_cast<int>(rank));
    }
    const bool some_gone = losses_ != 0;
    for (const Worker& worker : workers_) {
      if (some_gone && (worker.doing == Doing::pulls || worker.doing == Doing::is_held)) {
        objection_ = "a worker waits for ever";
      }
    }
  }

  void count(int rank) {
    if (!clocks_.end_push(rank)) return;
    clocks_.apply_all();
    sums_complete_ = true;
  }

  void end_push(int rank) {
    Worker& worker = at(rank);
    if (fault_ != Fault::counts_before_all_has_come) count(rank);
    ++worker.pushes;
    worker.pushes_next = random_() % 4 == 0;  // sometimes two pushes without a pull between them
    worker.doing = Doing::computes;
    ++kept_[static_cast<std::size_t>(rank)];
    apply(rank);
  }

  /// Changes the weights, as the server does beside its clocks.
  void apply(int rank) {
    if (Clock::kInRankOrder && !sums_complete_) return;
    sums_complete_ = false;
    for (std::size_t i = 0; i < applied_.size(); ++i) {
      if (!Clock::kInRankOrder && i != static_cast<std::size_t>(rank)) continue;
      applied_[i] += fault_ == Fault::applies_twice && random_() % 50 == 0 ? 2 : 1;
      kept_[i] = 0;
    }
  }

  void pull(int rank) {
    Worker& worker = at(rank);
    worker.doing = Doing::pulls;
    if (!clocks_.may_read(rank, worker.pushes)) {
      return tell(rank, clocks_.read_waits_for_lost(rank, worker.pushes, lost_.data()), "a read");
    }
    judge(rank);
    worker.pushes_next = true;
    worker.doing = Doing::computes;
  }

  /// The oracle. It knows the clock's rules by their literature, not by its code.
  void judge(int reader) {
    ++reads_;
    const std::uint64_t own = at(reader).pushes;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      const std::uint64_t applied = applied_[rank];
      const bool is_own = rank == static_cast<std::size_t>(reader);
      if (applied > workers_[rank].pushes) objection_ = "the weights contain more than was pushed";
      if (applied < contained_[rank]) objection_ = "the weights contain less than the server says";
      if (is_own && applied < own) objection_ = "a read misses a push of its own";
      if (applied + bound() < own && !is_own) objection_ = "a read is too stale";
      if (Clock::kInRankOrder && applied != own) objection_ = "bsp: another version";
    }
  }

  std::uint64_t bound() const {
    if constexpr (requires { clock_.staleness; }) return clock_.staleness;
    return Clock::kInRankOrder ? 0 : ~std::uint32_t{0};
  }

  std::mt19937_64 random_;
  Clock clock_;
  Fault fault_;
  std::vector<Worker> workers_;
  std::vector<std::uint64_t> received_, contained_;
  std::vector<std::uint32_t> lost_;
  RangeClocks clocks_;
  // What the oracle knows of the weights, by rank.
  std::vector<std::uint64_t> applied_;  // how often a push of it was applied
  std::vector<std::uint64_t> kept_;     // pushes that have come and are not applied
  std::uint32_t losses_ = 0;
  bool sums_complete_ = false;
  std::uint64_t reads_ = 0;
  std::string objection_;
};

constexpr int kTurns = 400;

/// With at least so many reads in a run.
template <class Clock>
void run_without_objection(const Clock& clock, std::uint64_t reads_min) {
  const auto [first, last] = gpusock::seeds_or({1, gpusock::kThreadSanitized ? 2'000 : 35'000});
  std::uint64_t reads = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation<Clock> simulation(seed, clock, clock, Fault::none);
    const std::string objection = simulation.run(kTurns);
    EXPECT_EQ(objection, "") << "GPUSOCK_TEST_SEEDS=" << seed << " runs it again";
    if (!objection.empty()) return;
    reads += simulation.reads();
  }
  const std::uint64_t count = last - first + 1;
  if (count < 100) return;
  EXPECT_GT(reads, reads_min * count);
}

TEST(ClockSimulation, NoReadBreaksItsClock) {
  run_without_objection(Bsp(), 2);
  run_without_objection(Ssp{2}, 10);
  run_without_objection(Async(), 20);
}

/// The first seed with an objection, or 0.
template <class Clock>
std::uint64_t found(const Clock& clock, const Clock& served, Fault fault) {
  constexpr std::uint64_t kSeedsOfFault = 200;
  for (std::uint64_t seed = 1; seed <= kSeedsOfFault; ++seed) {
    if (!Simulation<Clock>(seed, clock, served, fault).run(kTurns).empty()) return seed;
  }
  return 0;
}

TEST(ClockSimulation, FindsFaultsThatArePlanted) {
  EXPECT_NE(found(Bsp(), Bsp(), Fault::counts_before_all_has_come), 0);
  EXPECT_NE(found(Ssp{2}, Ssp{2}, Fault::counts_before_all_has_come), 0);
  EXPECT_NE(found(Bsp(), Bsp(), Fault::applies_twice), 0);
  EXPECT_NE(found(Ssp{2}, Ssp{2}, Fault::applies_twice), 0);
  EXPECT_NE(found(Ssp{2}, Ssp{3}, Fault::lets_stale_reads_through), 0);
  EXPECT_NE(found(Bsp(), Bsp(), Fault::takes_pushes_without_memory), 0);
  EXPECT_NE(found(Bsp(), Bsp(), Fault::answers_late), 0);
  EXPECT_NE(found(Ssp{2}, Ssp{2}, Fault::answers_late), 0);
}

/// Without a bound a slow worker's pushes are missed: what Ssp prevents does happen.
TEST(ClockSimulation, AsyncIsStale) {
  bool stale = false;
  for (std::uint64_t seed = 1; seed <= 200 && !stale; ++seed) {
    stale = !Simulation<Ssp>(seed, Ssp{2}, Ssp{1'000'000}, Fault::none).run(kTurns).empty();
  }
  EXPECT_TRUE(stale);
}

}  // namespace
