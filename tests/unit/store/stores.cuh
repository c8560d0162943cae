#pragma once
// Stores of all ranks in this process, with kernels that pull and push.
#include "param_sync/store.cuh"
#include "param_sync/update/sgd.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/executor/groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace store_test {

using gpusock::test::error_of;
using group_test::Groups;
using group_test::kRanks;
using param_sync::Async;
using param_sync::Bsp;
using param_sync::Sgd;
using param_sync::Ssp;
using param_sync::Store;
using param_sync::StoreEvent;
using param_sync::StoreHandle;
using param_sync::StoreOptions;
using param_sync::Update;

using Weights = std::vector<std::vector<float>>;

/// Ranges of these sizes, whose weights differ.
inline Weights weights_of_sizes(std::span<const std::size_t> sizes) {
  Weights all;
  for (const std::size_t size : sizes) {
    std::vector<float>& range = all.emplace_back();
    for (std::size_t i = 0; i < size; ++i) range.push_back(static_cast<float>(i % 11) * 0.5f);
  }
  return all;
}

/// A gradient that differs by rank, step and weight, and whose sums depend on their order.
__host__ __device__ inline float gradient_of(int rank, int step, std::uint64_t i, float weight) {
  const auto number = static_cast<float>((i * 7 + static_cast<std::uint64_t>(rank * 3 + step)) % 13);
  return number * 0.1f - weight * 0.01f * static_cast<float>(rank + 1);
}

/// What a worker's kernel uses.
struct Job {
  StoreHandle store;
  int rank = 0;
  int steps = 0;
  unsigned ranges = 0;
  const std::uint64_t* floats = nullptr;  ///< by range
  float* weights = nullptr;               ///< as long as the longest range
  float* gradients = nullptr;
  unsigned pause_ns = 0;      ///< before each step
  bool adds_ones = false;     ///< all gradients are 1
  bool only_pushes = false;   ///< it pulls nothing
  bool counts_steps = false;  ///< all gradients are the number of the step, from 1, times the rank's number from 1
  std::uint64_t timeout_ns = gpusock::kPatienceNs;
  int* result = nullptr;  ///< mapped
};

/// One step of one range.
__device__ inline int train_range(const Job& job, int step, unsigned range) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(job.timeout_ns);
  const int error = job.only_pushes ? 0 : param_sync::pull(block, job.store, range, job.weights, deadline);
  if (error != 0) return error;
  for (std::uint64_t i = threadIdx.x; i < job.floats[range]; i += blockDim.x) {
    job.gradients[i] = job.adds_ones      ? 1.0f
                       : job.counts_steps ? static_cast<float>((step + 1) * (job.rank + 1))
                                          : gradient_of(job.rank, step, i, job.weights[i]);
  }
  __syncthreads();
  return param_sync::push(block, job.store, range, job.gradients, deadline);
}

static __global__ void train(Job job) {
  int error = 0;
  for (int step = 0; step < job.steps && error == 0; ++step) {
    __nanosleep(job.pause_ns);
    for (unsigned range = 0; range < job.ranges && error == 0; ++range) error = train_range(job, step, range);
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// Pulls all ranges, one after the other, into memory that the host reads.
static __global__ void read_all(Job job, float* to) {
  int error = 0;
  for (unsigned range = 0; range < job.ranges && error == 0; ++range) {
    error = param_sync::pull(gpusock::this_block(), job.store, range, to, gpusock::Deadline::after_ns(job.timeout_ns));
    to += job.floats[range];
  }
  if (threadIdx.x == 0) *job.result = error;
}

/// A rank's store, and the memory of its kernels.
struct Rank {
  Rank(gpusock::Context& in, param_sync::Group& group, const Weights& initial, const StoreOptions& options)
      : context(in), store(std::in_place, group, initial, options), floats(in, initial.size()), result(in, 1) {
    std::vector<std::uint64_t> sizes;
    std::size_t longest = 1;
    for (const auto& range : initial) {
      sizes.push_back(range.size());
      all += range.size();
      longest = std::max(longest, range.size());
    }
    floats.copy_in(sizes);
    weights.emplace(in, longest);
    gradients.emplace(in, longest);
    read.emplace(in, all);
    result[0] = -EINPROGRESS;
    job.rank = group.rank();
    job.ranges = static_cast<unsigned>(initial.size());
    job.floats = floats.data();
    job.weights = weights->data();
    job.gradients = gradients->data();
    job.result = result.data();
  }

  void start() { job.store = store->start(); }
  void train(int steps, unsigned pause_ns = 0) {
    job.steps = steps;
    job.pause_ns = pause_ns;
    gpusock::launch(context, {.block = 2, .stream = &stream}, store_test::train, job);
  }
  /// Waits for the kernels, and returns the result of the last one.
  int wait() {
    stream.synchronize();
    return result[0];
  }
  /// All weights, as this rank reads them.
  std::vector<float> weights_now() {
    gpusock::launch(context, {.block = 2, .stream = &stream}, read_all, job, read->data());
    EXPECT_EQ(wait(), 0);
    std::vector<float> now(all);
    read->copy_out(now);
    return now;
  }

  gpusock::Context& context;
  std::optional<Store> store;
  gpusock::Stream stream{context};
  gpusock::DeviceBuffer<std::uint64_t> floats;
  gpusock::Mapped<int> result;
  std::optional<gpusock::DeviceBuffer<float>> weights, gradients, read;
  std::size_t all = 0;
  Job job;
};

/// Stores of all ranks, connected.
class Stores {
 public:
  explicit Stores(const StoreOptions& options, const Weights& initial) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(groups_.context(rank), groups_.group(rank), initial, options));
    }
    std::vector<std::jthread> starting;
    for (const auto& rank : ranks_) starting.emplace_back([&rank] { rank->start(); });
  }

  /// Waits until the servers have applied all pushes: a pull comes after the pushes of its own rank.
  void meet() {
    for (const auto& rank : ranks_) rank->weights_now();
  }

  Rank& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  Groups groups_{1};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

/// The error of a rank's store.
inline std::string failure_of(Rank& rank) {
  return error_of<gpusock::Error>([&] { rank.store->check(); });
}

}  // namespace store_test
