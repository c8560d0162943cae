// What the sum of a small tensor of four ranks of one process costs, if they sum again and again.
#include "param_sync/group.hpp"
#include "param_sync/resident.cuh"
#include "tests/unit/costs/gate.hpp"
#include "tests/unit/costs/pair.hpp"
#include "tests/unit/costs/snapshot.hpp"

#include <gpusock/launch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::costs::all_reduces {
namespace {

using param_sync::Group;
using param_sync::ResidentSums;
using param_sync::SumsHandle;

constexpr std::size_t kRanks = 4, kFloats = 64;
constexpr unsigned kSums = 32, kBatches = 4;
/// Of all ranks: the scheme of small sums has as many steps as kRanks - 1 has bits.
constexpr unsigned kMessages = 2 * kRanks;

struct Rank {
  explicit Rank(std::size_t number) : group(context, static_cast<int>(number), static_cast<int>(kRanks)) {}
  Context context{quiet_options()};
  DeviceBuffer<float> tensor{context, kFloats};
  Group group;
};

class Ranks {
 public:
  explicit Ranks(const std::string& link) {
    std::vector<Endpoint> addresses;
    for (std::size_t i = 0; i < kRanks; ++i) {
      ranks_.emplace_back(i);
      addresses.push_back(ranks_[i].group.listen(Endpoint::parse("127.0.0.1:0,link=" + link)));
    }
    on_each([&](std::size_t i) { ranks_[i].group.connect(addresses); });
    for (Rank& rank : ranks_) settle(rank.context);
  }

  template <class Call>
  static void on_each(Call call) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kRanks; ++i) threads.emplace_back([&call, i] { call(i); });
  }

  /// An operation of all ranks.
  template <class Start>
  void run(Start start) {
    std::array<Group::Operation, kRanks> operations;
    for (std::size_t i = 0; i < kRanks; ++i) operations[i] = start(ranks_[i]);
    for (std::size_t i = 0; i < kRanks; ++i) ranks_[i].group.wait(operations[i]);
  }

  Counts counts() const {
    return counts_after_steps(ranks_[0].context, ranks_[1].context, ranks_[2].context, ranks_[3].context);
  }
  Rank& operator[](std::size_t i) { return ranks_[i]; }

 private:
  std::deque<Rank> ranks_;
};

/// The least of several batches of sums. Some batches have more: a worker of the CPU device gets room for one more
/// block, or a proxy sends the head of a message before its body has come.
class Least {
 public:
  void add(const Counts& batch) {
    sent_ = std::min(sent_, batch.sent());
    received_ = std::min(received_, batch.received());
    allocations_ = std::min(allocations_, batch.allocations);
    others_ = std::min(others_, batch.others());
    wakes_ = std::min(wakes_, batch.wakes());
  }
  /// A sum makes at most so many messages, allocations and other calls. A message wakes one thread at most.
  void expect(unsigned messages, unsigned allocations, unsigned others) const {
    EXPECT_LE(sent_, kSums * messages + kMore);
    EXPECT_LE(received_, kSums * messages + kMore);
    EXPECT_LE(wakes_, kSums * messages);
    EXPECT_LE(allocations_, kSums * allocations + (allocations == 0 ? 0 : kMore));
    EXPECT_LE(others_, kSums * others + (others == 0 ? 0 : kMore));
  }

 private:
  static constexpr unsigned kMore = kSums / 2;  // less than one for each sum
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t sent_ = kNone, received_ = kNone, allocations_ = kNone, others_ = kNone, wakes_ = kNone;
};

class AllReduces : public testing::TestWithParam<const char*> {
 protected:
  static unsigned messages() { return GetParam() == std::string("p2p") ? 0 : kMessages; }
};

TEST_P(AllReduces, ThatTheHostStarts) {
  Ranks ranks(GetParam());
  const auto sum = [](Rank& rank) { return rank.group.all_reduce({rank.tensor.data(), kFloats}); };
  Least least;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    const Counts before = ranks.counts();
    for (unsigned i = 0; i < kSums; ++i) ranks.run(sum);
    least.add(ranks.counts() - before);
  }
  least.expect(messages(), 4 * kRanks, 4 * kRanks);  // the launch of each rank, and its getpid()
}

struct Seen {
  std::uint64_t switches;
  int wrong;
};

__global__ void sum_often(SumsHandle sums, float* data, Gate* gate, Seen* seen) {
  float number = 0;
  for (unsigned batch = 0; batch <= kBatches; ++batch) {
    if (threadIdx.x == 0) gate->pass();
    __syncthreads();
    const std::uint64_t before = cpu_device::thread_switches();
    for (unsigned i = 0; i < kSums; ++i, ++number) {
      for (std::size_t k = threadIdx.x; k < kFloats; k += blockDim.x) data[k] = number;
      const int error = param_sync::await_sum(sums, 0, param_sync::start_sum(sums, 0));
      if (threadIdx.x == 0 && (error != 0 || data[kFloats - 1] != kRanks * number)) ++seen->wrong;
      __syncthreads();  // all have read the sum
    }
    if (threadIdx.x == 0) seen->switches = cpu_device::thread_switches() - before;
  }
  if (threadIdx.x == 0) gate->pass();
}

void check_resident(const std::string& link, unsigned messages, unsigned threads) {
  Ranks ranks(link);
  Gate gate(kRanks);
  std::deque<ResidentSums> sums;
  std::deque<Mapped<Seen>> seen;
  std::deque<gpusock::Stream> streams;
  std::array<SumsHandle, kRanks> handles;
  for (std::size_t i = 0; i < kRanks; ++i) {
    sums.emplace_back(ranks[i].group, std::vector<param_sync::ResidentTensor>{{ranks[i].tensor.data(), kFloats}});
    seen.emplace_back(ranks[i].context, 1);
    streams.emplace_back(ranks[i].context);
  }
  Ranks::on_each([&](std::size_t i) { handles[i] = sums[i].start(); });
  for (std::size_t i = 0; i < kRanks; ++i) settle(ranks[i].context);
  for (std::size_t i = 0; i < kRanks; ++i) {
    launch(ranks[i].context, {.block = threads, .stream = &streams[i]}, sum_often, handles[i], ranks[i].tensor.data(),
           &gate, seen[i].data());
  }
  Least least;
  Counts before;
  for (unsigned batch = 0; batch <= kBatches + 1; ++batch) {
    gate.await();
    const Counts now = ranks.counts();
    if (batch > 1) least.add(now - before);  // the first batch is the warm-up
    before = now;
    gate.open();
  }
  for (std::size_t i = 0; i < kRanks; ++i) {
    streams[i].synchronize();
    EXPECT_EQ(seen[i][0].wrong, 0);
    const unsigned barriers = 5;  // one of this test
    EXPECT_LE(seen[i][0].switches, threads == 1 ? 0 : barriers * threads * kSums);
  }
  least.expect(messages, 0, 0);
  ranks.run([](Rank& rank) { return rank.group.barrier(); });  // no rank ends before the others
}

TEST_P(AllReduces, ThatThreadsStart) { check_resident(GetParam(), messages(), 1); }
TEST_P(AllReduces, ThatBlocksStart) { check_resident(GetParam(), messages(), 32); }

INSTANTIATE_TEST_SUITE_P(CostsOn, AllReduces, testing::Values("tcp", "p2p"),
                         [](const auto& link) { return std::string(link.param); });

}  // namespace
}  // namespace gpusock::costs::all_reduces
