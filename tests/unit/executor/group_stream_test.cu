// A group whose operations are launches of a program's stream: they are in order with the program's kernels.
#include "tests/unit/executor/groups.hpp"

#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"

#include "gpusock/device.cuh"

#include <cuda/atomic>

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace group_stream_test {
namespace {

using gpusock::test::error_of;
using group_test::kRanks;
using param_sync::Group;
using param_sync::GroupOptions;
using param_sync::ReduceOp;

constexpr std::size_t kFloats = 3'000;

/// Waits for the host, and then writes the rank's tensor.
__global__ void write_when_told(float* data, int rank, const std::uint64_t* told) {
  const cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> word(*const_cast<std::uint64_t*>(told));
  while (word.load(cuda::memory_order_acquire) == 0) __nanosleep(1'000);
  for (std::size_t i = 0; i < kFloats; ++i) data[i] = static_cast<float>(rank + 1);
}

__global__ void add_half(float* data) {
  for (std::size_t i = 0; i < kFloats; ++i) data[i] += 0.5f;
}

/// A rank with a stream of its own.
struct Rank {
  Rank(int number, int rank_count) : group(context, number, rank_count, options()), rank(number) { told[0] = 0; }
  GroupOptions options() {
    GroupOptions made;
    made.stream = &stream;
    return made;
  }
  void tell() {
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(told[0]).store(1, cuda::memory_order_release);
  }

  gpusock::Context context;
  gpusock::Stream stream{context};
  gpusock::DeviceBuffer<float> data{context, kFloats};
  gpusock::Mapped<std::uint64_t> told{context, 1};
  Group group;
  int rank;
};

std::vector<std::unique_ptr<Rank>> connected() {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<gpusock::Endpoint> addresses;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank, kRanks));
    addresses.push_back(ranks.back()->group.listen(gpusock::Endpoint::parse("127.0.0.1:0")));
  }
  std::vector<std::jthread> connecting;
  for (const auto& rank : ranks) connecting.emplace_back([&] { rank->group.connect(addresses); });
  return ranks;
}

TEST(GroupOnAStream, IsInOrderWithTheProgramsKernels) {
  const auto ranks = connected();
  std::vector<Group::Operation> sums;
  for (const auto& rank : ranks) {
    gpusock::launch(rank->context, {.stream = &rank->stream}, write_when_told, rank->data.data(), rank->rank,
                    rank->told.data());
    sums.push_back(rank->group.all_reduce({rank->data.data(), kFloats}));
    gpusock::launch(rank->context, {.stream = &rank->stream}, add_half, rank->data.data());
    sums.push_back(rank->group.all_reduce({rank->data.data(), kFloats}, ReduceOp::max));
  }
  for (const auto& rank : ranks) EXPECT_FALSE(rank->group.done(sums[0]));
  for (const auto& rank : ranks) rank->tell();
  for (const auto& rank : ranks) {
    rank->group.wait(sums[static_cast<std::size_t>(2 * rank->rank + 1)]);
    std::vector<float> data(kFloats);
    rank->data.copy_out(data);
    EXPECT_EQ(data, std::vector<float>(kFloats, 1 + 2 + 3 + 0.5f));
  }
}

TEST(GroupOnAStream, DoesNotWaitForLaterKernels) {
  const auto ranks = connected();
  std::vector<Group::Operation> barriers;
  for (const auto& rank : ranks) {
    barriers.push_back(rank->group.barrier());
    gpusock::launch(rank->context, {.stream = &rank->stream}, write_when_told, rank->data.data(), rank->rank,
                    rank->told.data());
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->group.wait(barriers[i]);
  for (const auto& rank : ranks) rank->tell();
}

TEST(GroupOnAStream, SaysThatAnOperationHasFailed) {
  const auto ranks = connected();
  const auto sum = ranks[0]->group.all_reduce({ranks[0]->data.data(), kFloats}, ReduceOp::sum, gpusock::kPatienceNs);
  gpusock::launch(ranks[0]->context, {.stream = &ranks[0]->stream}, add_half, ranks[0]->data.data());
  EXPECT_THROW(ranks[1]->group.broadcast({}, kRanks), gpusock::Error);  // an invalid argument ends the others' sums
  EXPECT_NE(error_of<gpusock::Error>([&] { ranks[0]->group.wait(sum); }).find("invalid argument"), std::string::npos);
}

}  // namespace
}  // namespace group_stream_test
