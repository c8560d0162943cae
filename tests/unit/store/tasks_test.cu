// Tasks that depend on others: pulls that wait for pushes, by the store's clock or by name.
#include "param_sync/executor/wait.cuh"
#include "param_sync/store/range_clocks.hpp"
#include "tests/unit/store/stores.cuh"

namespace store_test {
namespace {

constexpr int kTasks = 6;

/// The edges to a task from earlier ones of another worker: those that must be complete before it begins. (In the text
/// of the figure, worker 0's task t reads after t pushes of its own.)
template <class Clock>
std::string edges(const Clock& clock) {
  std::string all;
  for (std::uint64_t task = 0; task < 5; ++task) {
    for (std::uint64_t complete = 0; complete <= task; ++complete) {
      std::uint64_t received[] = {task, complete}, contained[] = {task, complete};
      const param_sync::store::RangeClocks clocks{param_sync::store::Clock(clock), received, contained, 2};
      if (!clocks.may_read(0, task)) continue;
      all += std::to_string(complete) + (task < 4 ? " " : "");
      break;
    }
  }
  return all;
}

/// The three graphs of the parameter server's figure of consistency models (Li et al., OSDI 2014): how many tasks of
/// another worker must be complete before task 0, 1, 2, ...
TEST(Tasks, BeginAsInTheFigure) {
  EXPECT_EQ(edges(Bsp()), "0 1 2 3 4") << "sequential: each task after the one before";
  EXPECT_EQ(edges(Async()), "0 0 0 0 0") << "eventual: all tasks may begin at once";
  EXPECT_EQ(edges(Ssp{1}), "0 0 1 2 3") << "bounded delay of 1: each task after the last but one";
}

struct TasksJob {
  StoreHandle store;
  int bound = 0;  ///< a task begins when others have ended the tasks up to so many before it; -1: at once
  std::uint64_t* gate = nullptr;  ///< before task 1 it waits until this is not 0
  std::uint64_t* after = nullptr;
  float* floats = nullptr;
  std::uint64_t* ended = nullptr;  ///< mapped: tasks
  int* result = nullptr;
};

__global__ void do_tasks(TasksJob job, int ranks) {
  const auto thread = gpusock::this_thread();
  const auto deadline = gpusock::Deadline::after_ns(gpusock::kPatienceNs);
  int error = 0;
  for (int task = 0; task < kTasks && error == 0; ++task) {
    if (task == 1 && job.gate != nullptr) {
      const param_sync::executor::SystemWord gate(*job.gate);
      param_sync::executor::await([&] { return gate.load(cuda::memory_order_relaxed) != 0; }, [] { return false; });
    }
    for (int rank = 0; rank < ranks; ++rank) {
      job.after[rank] = job.bound < 0 || task < job.bound ? 0 : static_cast<std::uint64_t>(task - job.bound);
    }
    error = param_sync::pull_after(thread, job.store, 0, job.after, job.floats, nullptr, deadline);
    job.floats[0] = 1;
    if (error == 0) error = param_sync::push(thread, job.store, 0, job.floats, deadline);
    const int ended = error == 0 ? task + 1 : kTasks;  // a failed rank must hold up nobody
    param_sync::executor::SystemWord(*job.ended).store(static_cast<std::uint64_t>(ended), cuda::memory_order_relaxed);
  }
  *job.result = error;
}

/// All ranks do tasks, and one of them stops after its first one, until the others have come as far as they may.
class Trace {
 public:
  explicit Trace(int bound) : stores_({.clock = Async(), .history_events = 2 * kTasks}, {{0}}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      TasksJob& job = jobs_[rank];
      job.store = stores_[rank].job.store;
      job.bound = bound;
      job.gate = rank == kStopped ? gate_.data() : nullptr;
      job.after = after_.data() + rank * kRanks;
      job.floats = stores_[rank].job.weights;
      job.ended = ended_.data() + rank;
      job.result = stores_[rank].job.result;
      gpusock::launch(stores_[rank].context, {.stream = &stores_[rank].stream}, do_tasks, job, kRanks);
    }
    const std::uint64_t most = bound < 0 ? kTasks : static_cast<std::uint64_t>(bound + 1);
    for (int rank = 0; rank < kRanks; ++rank) {
      const param_sync::executor::SystemWord ended(ended_[rank]);
      while (rank != kStopped && ended.load(cuda::memory_order_relaxed) < most) std::this_thread::yield();
    }
    param_sync::executor::SystemWord(gate_[0]).store(1, cuda::memory_order_relaxed);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(stores_[rank].wait(), 0);
  }

  /// By task of rank 0: how many tasks of the stopped rank were complete when it began.
  std::vector<std::uint64_t> seen() {
    std::vector<std::uint64_t> all;
    for (const StoreEvent& event : stores_[0].store->history()) {
      if (!event.is_push) all.push_back(event.seen[kStopped]);
    }
    return all;
  }

 private:
  static constexpr int kStopped = 2;
  Stores stores_;
  gpusock::Context context_;
  gpusock::Mapped<std::uint64_t> gate_{context_, 1}, ended_{context_, kRanks};
  gpusock::DeviceBuffer<std::uint64_t> after_{context_, kRanks* kRanks};
  TasksJob jobs_[kRanks];
};

TEST(Tasks, DependOnThePushesThatTheyName) {
  for (const int bound : {0, 1, 3}) {
    const std::vector<std::uint64_t> seen = Trace(bound).seen();
    ASSERT_EQ(seen.size(), kTasks);
    for (int task = 0; task < kTasks; ++task) {
      EXPECT_GE(seen[static_cast<std::size_t>(task)] + static_cast<std::uint64_t>(bound),
                static_cast<std::uint64_t>(task));
    }
    EXPECT_LE(seen[static_cast<std::size_t>(bound)], 1) << "it has begun while the other rank was stopped";
  }
  const std::vector<std::uint64_t> eventual = Trace(-1).seen();
  ASSERT_EQ(eventual.size(), kTasks);
  EXPECT_LE(eventual.back(), 1);
}

__global__ void pull_what_never_comes(StoreHandle store, std::uint64_t* after, float* floats, int rank, int* result) {
  after[rank] = 1;
  *result = param_sync::pull_after(gpusock::this_thread(), store, 0, after, floats, nullptr,
                                   gpusock::Deadline::after_ns(rank == 1 ? gpusock::kPatienceNs : 50'000'000));
}

TEST(Tasks, ThatWaitForALostRankAreToldSo) {
  Stores stores({.clock = Async()}, {{0}, {0}});
  ASSERT_EQ(stores[0].store->owner(0), 0);
  gpusock::DeviceBuffer<std::uint64_t> after(stores[0].context, kRanks);
  gpusock::launch(stores[0].context, {.stream = &stores[0].stream}, pull_what_never_comes, stores[0].job.store,
                  after.data(), stores[0].job.weights, 1, stores[0].job.result);
  stores[1].store.reset();
  EXPECT_NE(stores[0].wait(), 0);
  EXPECT_NE(failure_of(stores[0]).find("rank 1"), std::string::npos);
}

TEST(Tasks, ThatWaitForAPushThatNeverComesEndAtTheirDeadline) {
  Stores stores({.clock = Async()}, {{0}});
  gpusock::DeviceBuffer<std::uint64_t> after(stores[0].context, kRanks);
  gpusock::launch(stores[0].context, {.stream = &stores[0].stream}, pull_what_never_comes, stores[0].job.store,
                  after.data(), stores[0].job.weights, 2, stores[0].job.result);
  EXPECT_EQ(stores[0].wait(), -ETIMEDOUT);
}

}  // namespace
}  // namespace store_test
