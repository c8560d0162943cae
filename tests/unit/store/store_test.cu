// Stores of all ranks in this process: what workers' kernels read, and what becomes of them when a rank is lost.
#include "tests/unit/store/stores.cuh"

#include <cmath>
#include <variant>

namespace store_test {
namespace {

constexpr std::size_t kSizes[] = {5, 1, 0, 1'001, 40'000};  // the last one is several rings
constexpr int kSteps = 6;

Weights initial_weights() { return weights_of_sizes(kSizes); }

/// The weights of `steps` bulk-synchronous steps, computed one after the other.
std::vector<float> serial(int steps, const Update& update) {
  const Sgd sgd = Sgd::of({update.learning_rate, update.momentum, update.scale, update.nesterov});
  std::vector<float> all;
  for (std::vector<float> range : initial_weights()) {
    std::vector<float> velocity(range.size());
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < range.size(); ++i) {
        float sum = gradient_of(0, step, i, range[i]);
        for (int rank = 1; rank < kRanks; ++rank) sum = sum + gradient_of(rank, step, i, range[i]);
        sgd.apply(sum, {&velocity[i], 1}, range[i]);
      }
    }
    all.insert(all.end(), range.begin(), range.end());
  }
  return all;
}

TEST(Stores, BspIsTheSerialRunBitForBit) {
  std::vector<std::uint64_t> device_bytes;
  for (const unsigned connections : {1u, 3u}) {
    const Update update = connections == 1 ? Update::sgd(0.05f, 0.9f, 1.0f / kRanks)
                                           : Update::nesterov_sgd(0.05f, 0.9f, 1.0f / kRanks);
    // What ranks own is in device memory at first, then in host memory, which changes no bit.
    const StoreOptions options{
        .clock = Bsp(), .update = update, .connections = connections, .in_host_memory = connections != 1};
    Stores stores(options, initial_weights());
    for (int rank = 0; rank < kRanks; ++rank) stores[rank].train(kSteps, static_cast<unsigned>(rank) * 200'000);
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0) << "rank " << rank;
    const std::vector<float> expected = serial(kSteps, options.update);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(stores[rank].weights_now(), expected) << "rank " << rank;
    for (int rank = 0; rank < kRanks; ++rank) stores[rank].store->check();
    device_bytes.push_back(0);
    for (int rank = 0; rank < kRanks; ++rank) device_bytes.back() += stores[rank].context.stats().device_bytes;
  }
  // Weights, velocities, and pushes of all ranks. Connections take some memory, too.
  EXPECT_GT(device_bytes[0], device_bytes[1] + (2 + kRanks) * 35'000 * sizeof(float));
}

TEST(Stores, EveryPushIsAppliedOnce) {
  const Weights zero{std::vector<float>(100), std::vector<float>(3'000), std::vector<float>(7)};
  for (const param_sync::AnyClock& clock :
       {param_sync::AnyClock(Bsp()), param_sync::AnyClock(Ssp{2}), param_sync::AnyClock(Async())}) {
    Stores stores({.clock = clock}, zero);
    for (int rank = 0; rank < kRanks; ++rank) {
      stores[rank].job.adds_ones = true;
      stores[rank].train(kSteps);
    }
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0) << clock.index();
    stores.meet();
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> weights = stores[rank].weights_now();
      EXPECT_EQ(weights, std::vector<float>(weights.size(), kRanks * kSteps)) << clock.index();
    }
  }
}

/// With Bsp the second push of a rank waits until the first one is applied, and must not take its place.
TEST(Stores, PushesWithoutPullsWaitForTheOthers) {
  for (const std::size_t floats : {std::size_t{0}, std::size_t{10}, std::size_t{20'000}}) {  // more than a ring
    Stores stores({.clock = Bsp()}, {std::vector<float>(floats)});
    float expected = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      stores[rank].job.only_pushes = true;
      stores[rank].job.counts_steps = true;
      stores[rank].train(3);
      const int error = floats <= 10 ? stores[rank].wait() : 0;  // all of it is in the ring, before the next rank
                                                                 // begins
      ASSERT_EQ(error, 0);
      expected += static_cast<float>((1 + 2 + 3) * (rank + 1));
    }
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0);
    const std::vector<float> weights = stores[1].weights_now();
    EXPECT_EQ(weights, std::vector<float>(weights.size(), expected));
  }
}

/// How many reads of a history break the bound of Ssp.
int too_stale(const std::vector<StoreEvent>& history, std::uint64_t staleness) {
  int count = 0;
  for (const StoreEvent& event : history) {
    if (event.is_push) continue;
    for (const std::uint64_t seen : event.seen) count += seen + staleness < event.clock ? 1 : 0;
  }
  return count;
}

TEST(Stores, WithSspAWorkerGoesOnAsFarAsItMay) {
  const Weights small{std::vector<float>(10)};
  Stores stores({.clock = Ssp{2}, .history_events = 100}, small);
  stores[0].train(3);  // reads at clocks 0, 1 and 2: the others need not have pushed
  ASSERT_EQ(stores[0].wait(), 0);
  stores[0].train(1);
  for (int rank = 1; rank < kRanks; ++rank) {
    stores[rank].train(1);
    ASSERT_EQ(stores[rank].wait(), 0);
  }
  ASSERT_EQ(stores[0].wait(), 0);
  const std::vector<StoreEvent> history = stores[0].store->history();
  ASSERT_EQ(history.size(), 8);  // four reads and four pushes
  EXPECT_EQ(too_stale(history, 2), 0);
  EXPECT_GT(too_stale(history, 1), 0);
  EXPECT_FALSE(history[6].is_push);
  EXPECT_EQ(history[6].clock, 3);
  EXPECT_EQ(history[6].seen, (std::vector<std::uint64_t>{3, 1, 1}));
  EXPECT_TRUE(history[7].is_push);
  EXPECT_EQ(history[7].clock, 4);
  EXPECT_EQ(history[7].begin, 0);
  EXPECT_EQ(history[7].end, 10);
}

TEST(Stores, WithAsyncAWorkerDoesNotWait) {
  Stores stores({.clock = Async(), .history_events = 30}, {std::vector<float>(10)});
  stores[0].train(20);
  ASSERT_EQ(stores[0].wait(), 0);
  const std::vector<StoreEvent> history = stores[0].store->history();
  EXPECT_EQ(history.size(), 30);  // the later ten are not kept
  EXPECT_GT(too_stale(history, 2), 0);
}

/// A rank pushes ones so many times, reading before each time or never, and others wait until they are applied.
void push_ones(Rank& rank, int times, bool reads) {
  rank.job.adds_ones = true;
  rank.job.only_pushes = !reads;
  rank.train(times);
  ASSERT_EQ(rank.wait(), 0);
  rank.weights_now();
}

/// A weight after pushes of three ranks, one rank after the other.
float weight_after(const StoreOptions& options) {
  Stores stores(options, {std::vector<float>(1'001)});
  stores[0].weights_now();  // rank 0 reads the first weights
  for (const int rank : {1, 2}) push_ones(stores[rank], 3, true);
  push_ones(stores[0], 1, false);
  const std::vector<float> weights = stores[1].weights_now();
  EXPECT_EQ(weights, std::vector<float>(weights.size(), weights[0]));
  return weights[0];
}

TEST(Stores, EachRankHasItsVelocity) {
  const Update update = Update::sgd(1.0f, 0.5f);
  EXPECT_EQ(weight_after({.clock = Async(), .update = update}), -(2 * (1 + 1.5f + 1.75f) + 1));
  EXPECT_EQ(weight_after({.clock = Ssp{9}, .update = update}), -(2 * (1 + 1.5f + 1.75f) + 1));
}

/// A weight after one bulk-synchronous step in which each of three ranks pushes 1.
float weight_after_step(const Update& update) {
  Stores stores({.clock = Bsp(), .update = update}, {std::vector<float>(11)});
  for (int rank = 0; rank < kRanks; ++rank) {
    stores[rank].job.adds_ones = true;
    stores[rank].train(1);
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(stores[rank].wait(), 0);
  return stores[0].weights_now()[0];
}

/// With an L1 norm in the loss a step of all ranks ends nearer to 0, and not beyond. A push by itself has a rank's
/// part.
TEST(Stores, AnL1NormTakesWeightsToZero) {
  EXPECT_EQ(weight_after_step(Update::proximal(1, 0.75f)), -3 + 0.75f);
  EXPECT_EQ(weight_after_step(Update::proximal(1, 0.75f, -1)), 3 - 0.75f);
  EXPECT_EQ(weight_after_step(Update::proximal(1, 4)), 0);
  EXPECT_EQ(weight_after({.clock = Async(), .update = Update::proximal(1, 0.75f)}), -7 * (1 - 0.25f));
  EXPECT_EQ(weight_after({.clock = Async(), .update = Update::proximal(1, 4)}), 0);
}

/// Before rank 0 pushes, each of the others has pushed three times since rank 0 has read.
TEST(Stores, ALatePushIsDividedByItsLag) {
  const Update update = Update::sgd(1.0f);
  EXPECT_EQ(weight_after({.clock = Async(), .update = update}), -7);
  EXPECT_EQ(weight_after({.clock = Async(), .update = update, .correction = {.divides_by_lag = true}}), -6 - 1.0f / 3);
}

/// Rank 0 has read 0, and finds -6: the others have read before each of their pushes. A gradient is a push times the
/// number of ranks, 3.
TEST(Stores, ALatePushIsCompensatedForWhatHasChanged) {
  const Update update = Update::sgd(1.0f);
  const StoreOptions options{.clock = Async(), .update = update, .correction = {.compensation = 0.5f}};
  double square = 0;
  for (int push = 0; push < 7; ++push) square = 0.95 * square + 0.05 * 9;
  const double late = 1 + 0.5 / std::sqrt(square) * 3 * -6;
  EXPECT_NEAR(weight_after(options), -6 - late, 1e-4);
}

TEST(Stores, CorrectionsThatMeanNothingAreRefused) {
  Groups groups(1);
  const auto refusal = [&](const StoreOptions& options) {
    return error_of<gpusock::Error>([&] { Store(groups.group(0), Weights{{1}}, options); });
  };
  EXPECT_NE(refusal({.clock = Bsp(), .correction = {.divides_by_lag = true}}).find("no late push is applied"),
            std::string::npos);
  EXPECT_NE(refusal({.clock = Async(), .correction = {.compensation = -1}}).find("not from 0 to 1e6"),
            std::string::npos);
}

TEST(Stores, AHistoryIsLinesOfJson) {
  StoreEvent read, push;
  read.clock = 2;
  read.end = 10;
  read.seen = {2, 1};
  push.is_push = true;
  push.clock = 3;
  push.begin = 10;
  push.end = 11;
  EXPECT_EQ(param_sync::to_json_lines(1, std::vector{read, push}),
            "{\"worker\": 1, \"op\": \"read\", \"clock\": 2, \"keys\": [0, 10], \"seen\": [2, 1]}\n"
            "{\"worker\": 1, \"op\": \"push\", \"clock\": 3, \"keys\": [10, 11]}\n");
}

TEST(Stores, AWorkerThatIsLostIsNamed) {
  Stores stores({.clock = Bsp()}, {std::vector<float>(10)});
  ASSERT_EQ(stores[0].store->owner(0), 0);
  for (int rank = 0; rank < kRanks; ++rank) stores[rank].train(1);
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0);
  for (const int rank : {0, 2}) stores[rank].train(2);  // the second one reads what rank 1 has not pushed
  stores[1].store.reset();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(stores[rank].wait(), -ECONNRESET);
    EXPECT_NE(failure_of(stores[rank]).find("lost rank 1: a pull of range 0 must wait"), std::string::npos)
        << failure_of(stores[rank]);
  }
}

TEST(Stores, AnOwnerThatIsLostIsNamed) {
  Stores stores({.clock = Async()}, {std::vector<float>(10)});
  stores[0].store.reset();
  for (const int rank : {1, 2}) {
    stores[rank].train(1);
    EXPECT_NE(stores[rank].wait(), 0);
    EXPECT_NE(failure_of(stores[rank]).find("lost rank 0, which owns range 0"), std::string::npos);
  }
}

TEST(Stores, ACallEndsAtItsDeadline) {
  Stores stores({.clock = Bsp()}, {std::vector<float>(10)});
  stores[1].job.timeout_ns = 20'000'000;
  stores[1].train(2);  // the second pull waits for ranks that do not push
  EXPECT_EQ(stores[1].wait(), -ETIMEDOUT);
  EXPECT_NE(failure_of(stores[1]).find("no answer by the deadline from rank 0, which owns range 0"), std::string::npos);
  stores[1].train(1);
  EXPECT_NE(stores[1].wait(), 0) << "later calls fail, too";
  for (const int rank : {0, 2}) stores[rank].train(3);  // the third pull needs a push that rank 1 has not made
  for (const int rank : {0, 2}) {
    EXPECT_EQ(stores[rank].wait(), -ECONNRESET) << "rank 1 is lost for the others";
    EXPECT_NE(failure_of(stores[rank]).find("lost rank 1"), std::string::npos);
  }
}

TEST(Stores, AStoreThatIsStoppedIsLostForTheOthers) {
  Stores stores({.clock = Async()}, {std::vector<float>(10)});
  ASSERT_EQ(stores[0].store->owner(0), 0);
  for (int i = 0; i < 2; ++i) stores[0].store->stop();
  stores[1].job.timeout_ns = 20'000'000;
  stores[1].train(1);
  EXPECT_EQ(stores[1].wait(), -ETIMEDOUT) << "nobody answers";
}

TEST(Stores, AStoreMayBeMadeBeforeItsGroupIsConnected) {
  gpusock::Context contexts[2];
  std::vector<std::unique_ptr<param_sync::Group>> groups;
  std::vector<gpusock::Endpoint> addresses;
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < 2; ++rank) {
    groups.push_back(std::make_unique<param_sync::Group>(contexts[rank], rank, 2));
    EXPECT_NE(error_of<gpusock::Error>([&] { Store(*groups.back(), Weights{{1}}, {}); }).find("call listen first"),
              std::string::npos);
    addresses.push_back(groups.back()->listen(gpusock::Endpoint::parse("127.0.0.1:0")));
    stores.push_back(std::make_unique<Store>(*groups.back(), Weights{{1}}, StoreOptions{}));
  }
  std::vector<std::jthread> starting;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    starting.emplace_back([&, rank] {
      groups[rank]->connect(addresses);
      stores[rank]->start();
    });
  }
}

__global__ void push_where_nothing_is(Job job) {
  *job.result = param_sync::push(gpusock::this_thread(), job.store, job.ranges, job.gradients);
}

TEST(Stores, ARangeThatDoesNotExistIsRefused) {
  Stores stores({}, {std::vector<float>(10)});
  gpusock::launch(stores[0].context, {.stream = &stores[0].stream}, push_where_nothing_is, stores[0].job);
  EXPECT_EQ(stores[0].wait(), -EINVAL);
  stores[0].store->check();
  EXPECT_THROW(stores[0].store->owner(1), gpusock::Error);
}

/// Sends a request that no worker sends.
__global__ void break_the_protocol(Job job, param_sync::store::Request request) {
  const param_sync::store::Worker& worker = *job.store.worker;
  const auto sent = worker.net.send(gpusock::this_thread(), worker.sockets[worker.connection_of(0)], &request,
                                    sizeof request);
  *job.result = sent == static_cast<std::int64_t>(sizeof request) ? 0 : -EIO;
}

TEST(Stores, ARankThatBreaksTheProtocolIsDisconnectedAlone) {
  using param_sync::store::Request;
  using param_sync::store::RequestKind;
  const Request bad[] = {{RequestKind{7}, 0, 0, 10},        {RequestKind::push, 9, 0, 10},
                         {RequestKind::push, 0, 0, 11},     {RequestKind::push, 0, 1, 10},
                         {RequestKind::pull, 0, 5, 10},     {RequestKind::pull, 1, 0, 20},  // another owner's range
                         {RequestKind::pull, ~0u, 0, ~0ull}};
  for (const Request& request : bad) {
    Stores stores({.clock = Async()}, {std::vector<float>(10), std::vector<float>(9)});
    ASSERT_EQ(stores[0].store->owner(0), 0);
    ASSERT_EQ(stores[0].store->owner(1), 1);
    gpusock::launch(stores[1].context, {.stream = &stores[1].stream}, break_the_protocol, stores[1].job, request);
    ASSERT_EQ(stores[1].wait(), 0);
    stores[1].train(1);
    EXPECT_NE(stores[1].wait(), 0);
    EXPECT_NE(failure_of(stores[0]).find("rank 1 has sent a request that does not follow"), std::string::npos);
    for (const int rank : {0, 2}) {
      stores[rank].train(2);
      EXPECT_EQ(stores[rank].wait(), 0) << "the others go on";
    }
  }
}

TEST(Stores, RanksWithOtherOptionsAreNamed) {
  Groups groups(1);
  std::vector<std::unique_ptr<Store>> stores;
  for (int rank = 0; rank < kRanks; ++rank) {
    const StoreOptions options{.clock = rank == 2 ? param_sync::AnyClock(Ssp{1}) : param_sync::AnyClock(Ssp{2})};
    stores.push_back(std::make_unique<Store>(groups.group(rank), Weights{std::vector<float>(4)}, options));
  }
  std::vector<std::string> errors(kRanks);
  {
    std::vector<std::jthread> starting;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      starting.emplace_back([&, rank] { errors[rank] = error_of<gpusock::Error>([&] { stores[rank]->start(); }); });
    }
  }
  bool named = false;  // by one rank at least: others may only have seen that this one has ended
  for (const std::string& error : errors) {
    EXPECT_NE(error, "");
    named = named || error.find("has other ranges, initial weights or options") != std::string::npos;
  }
  EXPECT_TRUE(named) << errors[0] << errors[1] << errors[2];
}

/// Two blocks pull at the same time from two owners.
__global__ void pull_in_two_blocks(Job job, float* to) {
  int error = 0;
  float* const own = to + 10 * blockIdx.x;
  for (int step = 0; step < job.steps && error == 0; ++step) {
    error = param_sync::pull(gpusock::this_block(), job.store, blockIdx.x, own,
                             gpusock::Deadline::after_ns(job.timeout_ns));
  }
  if (threadIdx.x == 0 && error != 0) *job.result = error;
}

TEST(Stores, TwoBlocksMayPullFromTwoOwners) {
  Stores stores({.clock = Async()}, {std::vector<float>(10, 1.0f), std::vector<float>(9, 2.0f)});
  ASSERT_NE(stores[0].store->owner(0), stores[0].store->owner(1));
  for (int rank = 0; rank < kRanks; ++rank) {
    stores[rank].result[0] = 0;
    stores[rank].job.steps = 2'000;
    gpusock::launch(stores[rank].context, {.grid = 2, .block = 2, .stream = &stores[rank].stream}, pull_in_two_blocks,
                    stores[rank].job, stores[rank].read->data());
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(stores[rank].wait(), 0);
    std::vector<float> read(19);
    stores[rank].read->copy_out(read);
    for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], i < 10 ? 1.0f : 2.0f) << i;
  }
}

TEST(Stores, AStoreThatNeverStartsLeavesNothingBehind) {
  Groups groups(1);
  for (int i = 0; i < 1'100; ++i) Store(groups.group(0), Weights{{1}}, {});  // more than there are sockets
}

/// Rank 1 ends, and rank 2 pushes twice: its second push could only be applied with one of rank 1.
TEST(Stores, AHeldPushOfABspThatCannotGoOnIsTold) {
  Stores stores({.clock = Bsp()}, {std::vector<float>(20'000)});  // longer than a ring: the push itself waits, too
  stores[1].store.reset();
  for (const int rank : {0, 2}) {
    stores[rank].job.only_pushes = true;
    stores[rank].train(3);
  }
  for (const int rank : {0, 2}) {
    ASSERT_EQ(stores[rank].wait(), 0);
    stores[rank].job.only_pushes = false;
    stores[rank].train(1);
    EXPECT_EQ(stores[rank].wait(), -ECONNRESET);
    EXPECT_NE(failure_of(stores[rank]).find("lost rank 1"), std::string::npos) << failure_of(stores[rank]);
  }
}

TEST(Stores, MisuseIsRefused) {
  Groups groups(1);
  const auto refusal = [&](const Weights& initial, const StoreOptions& options) {
    return error_of<gpusock::Error>([&] { Store store(groups.group(0), initial, options); });
  };
  EXPECT_NE(refusal({}, {}).find("no range of weights"), std::string::npos);
  EXPECT_NE(refusal({{1}}, {.connections = 0}).find("0 connections to each owner, not 1 to 16"), std::string::npos);
  EXPECT_NE(refusal({{1}}, {.connections = 17}).find("17 connections"), std::string::npos);
}

}  // namespace
}  // namespace store_test
