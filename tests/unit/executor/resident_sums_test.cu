// Sums that kernels start, and wait for, without the host.
#include "param_sync/resident.cuh"
#include "tests/support/error_of.hpp"
#include "tests/unit/executor/groups.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace resident_sums_test {
namespace {

using gpusock::test::error_of;
using group_test::Groups;
using group_test::kRanks;
using param_sync::await_sum;
using param_sync::Group;
using param_sync::ResidentSums;
using param_sync::ResidentTensor;
using param_sync::start_sum;
using param_sync::SumsHandle;

constexpr unsigned kBlocks = 2, kThreads = 32, kSums = 3;
constexpr std::size_t kSmall = 1'000, kLarge = 60'000;  // by two schemes
constexpr std::size_t kFloats = kSmall + kLarge;

/// Each thread fills its part of both tensors with values that depend on the rank and the sum, and compares what comes.
__global__ void fill_and_sum(SumsHandle sums, float* data, int rank, int* wrong) {
  const std::size_t begin[] = {0, kSmall, kFloats};
  const std::size_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (unsigned round = 0; round < kSums; ++round) {
    std::uint64_t number[2];
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor) {
      for (std::size_t i = begin[tensor] + thread; i < begin[tensor + 1]; i += threads) {
        data[i] = static_cast<float>(rank) + static_cast<float>(round);
      }
      number[tensor] = start_sum(sums, tensor);
    }
    const float wanted = 0 + 1 + 2 + kRanks * static_cast<float>(round);
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor) {
      const int error = await_sum(sums, tensor, number[tensor]);
      if (error != 0) wrong[thread] = error;
      if (number[tensor] != round + 1) ++wrong[thread];
      for (std::size_t i = begin[tensor] + thread; i < begin[tensor + 1]; i += threads) {
        if (data[i] != wanted) ++wrong[thread];
      }
    }
  }
}

__global__ void only_start(SumsHandle sums, float* data) {
  for (std::size_t i = 0; i < kSmall; ++i) data[i] = 1;
  start_sum(sums, 0);
}

__global__ void only_wait(SumsHandle sums, std::uint64_t number, std::uint64_t timeout_ns, int* result) {
  const int error = await_sum(sums, 0, number, gpusock::Deadline::after_ns(timeout_ns));
  if (threadIdx.x == 0) *result = error;
}

/// Resident sums of all ranks.
struct Resident {
  Resident(unsigned starting_blocks, std::uint64_t timeout_ns) : groups(kFloats), handles(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      float* data = groups.tensor(rank).data();
      const std::vector<ResidentTensor> tensors{{data, kSmall, starting_blocks},
                                                {data + kSmall, kLarge, starting_blocks}};
      sums.push_back(std::make_unique<ResidentSums>(groups.group(rank), tensors, timeout_ns));
      results.push_back(std::make_unique<gpusock::Mapped<int>>(groups.context(rank), kBlocks * kThreads));
      for (unsigned i = 0; i < kBlocks * kThreads; ++i) result(rank)[i] = 0;
      streams.push_back(std::make_unique<gpusock::Stream>(groups.context(rank)));
    }
    std::vector<std::jthread> starting;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      starting.emplace_back([this, rank] { handles[rank] = sums[rank]->start(); });
    }
  }

  const SumsHandle& handle(int rank) const { return handles[static_cast<std::size_t>(rank)]; }
  gpusock::Mapped<int>& result(int rank) { return *results[static_cast<std::size_t>(rank)]; }
  gpusock::Stream& stream(int rank) { return *streams[static_cast<std::size_t>(rank)]; }
  void launch_wait(int rank, std::uint64_t number, std::uint64_t timeout_ns) {
    gpusock::launch(groups.context(rank), {.block = kThreads, .stream = &stream(rank)}, only_wait, handle(rank), number,
                    timeout_ns, result(rank).data());
  }

  Groups groups;
  std::vector<std::unique_ptr<gpusock::Mapped<int>>> results;
  std::vector<std::unique_ptr<gpusock::Stream>> streams;  // the context's own ends when resident blocks do
  std::vector<std::unique_ptr<ResidentSums>> sums;
  std::vector<SumsHandle> handles;
};

constexpr std::uint64_t kLongNs = 30'000'000'000, kShortNs = 50'000'000;

TEST(ResidentSumsOfAGroup, AKernelSumsAgainAndAgain) {
  Resident resident(kBlocks, kLongNs);
  for (int rank = 0; rank < kRanks; ++rank) {
    gpusock::launch(resident.groups.context(rank),
                    {.grid = kBlocks, .block = kThreads, .stream = &resident.stream(rank)}, fill_and_sum,
                    resident.handle(rank), resident.groups.tensor(rank).data(), rank, resident.result(rank).data());
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    resident.stream(rank).synchronize();
    for (unsigned i = 0; i < kBlocks * kThreads; ++i) EXPECT_EQ(resident.result(rank)[i], 0) << rank;
    resident.sums[static_cast<std::size_t>(rank)]->check();
  }
  // The group's own operations go on beside.
  std::vector<Group::Operation> barriers;
  for (int rank = 0; rank < kRanks; ++rank) barriers.push_back(resident.groups.group(rank).barrier());
  resident.groups.wait(barriers);
}

TEST(ResidentSumsOfAGroup, ALaterKernelWaits) {
  Resident resident(1, kLongNs);
  resident.launch_wait(0, 1, kShortNs);
  resident.stream(0).synchronize();
  EXPECT_EQ(resident.result(0)[0], -ETIMEDOUT);  // nobody has started it
  for (int rank = 0; rank < kRanks; ++rank) {
    gpusock::launch(resident.groups.context(rank), {.stream = &resident.stream(rank)}, only_start,
                    resident.handle(rank), resident.groups.tensor(rank).data());
    resident.launch_wait(rank, 1, kLongNs);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    resident.stream(rank).synchronize();
    EXPECT_EQ(resident.result(rank)[0], 0);
    std::vector<float> result(kFloats);
    resident.groups.tensor(rank).copy_out(result);
    EXPECT_EQ(result[kSmall - 1], kRanks);
  }
}

TEST(ResidentSumsOfAGroup, ARankThatIsLateOrGoneEndsTheWait) {
  Resident resident(1, kShortNs);
  gpusock::launch(resident.groups.context(0), {.stream = &resident.stream(0)}, only_start, resident.handle(0),
                  resident.groups.tensor(0).data());
  resident.launch_wait(0, 1, kLongNs);
  resident.stream(0).synchronize();
  EXPECT_EQ(resident.result(0)[0], -ECONNRESET);
  EXPECT_NE(error_of<gpusock::Error>([&] { resident.sums[0]->check(); }), "");
}

TEST(ResidentSumsOfAGroup, TheHostEndsAKernelsWait) {
  Resident resident(1, kLongNs);
  resident.launch_wait(1, 1, kLongNs);
  resident.sums[1].reset();  // returns when the kernel that waits has ended
  resident.stream(1).synchronize();
  EXPECT_EQ(resident.result(1)[0], -ECANCELED);
}

TEST(ResidentSumsOfAGroup, MisuseIsRefused) {
  gpusock::Context context;
  Group group(context, 0, 1);
  gpusock::DeviceBuffer<float> tensor(context, 1);
  const auto error = [&](std::vector<ResidentTensor> tensors) {
    return error_of<gpusock::Error>([&] { ResidentSums sums(group, tensors); });
  };
  EXPECT_NE(error({{tensor.data(), 1}}).find("call connect first"), std::string::npos);
  group.connect({group.listen(gpusock::Endpoint::parse("127.0.0.1:0"))});
  EXPECT_NE(error({}).find("no tensor"), std::string::npos);
  EXPECT_NE(error({{tensor.data(), 1, 0}}).find("0 blocks"), std::string::npos);
  EXPECT_NE(error({{nullptr, 1}}).find("1 floats at a null pointer"), std::string::npos);
  ResidentSums sums(group, {{tensor.data(), 1}});
  sums.start();
  EXPECT_NE(error_of<gpusock::Error>([&] { sums.start(); }).find("was called before"), std::string::npos);
}

}  // namespace
}  // namespace resident_sums_test
