#include "trial/store_trial.hpp"

#include <param_sync/store.cuh>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <vector>

namespace param_sync::executor {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kPushThreads = 1;  // more threads of a block would share one processor
#else
constexpr unsigned kPushThreads = 128;
#endif

/// A worker's buffers, each of a range.
struct RangeBuffers {
  const float* pushed = nullptr;
  float* pulled = nullptr;
  int* error = nullptr;  ///< mapped
};

/// The ranges are those of StoreLoad::range_of(), which is a host function.
__global__ void push_and_pull(StoreHandle store, unsigned first, unsigned ranges, int pairs, RangeBuffers buffers) {
  const auto block = gpusock::this_block();
  int error = 0;
  for (int pair = 0; pair < pairs && error == 0; ++pair) {
    const unsigned range = (first + static_cast<unsigned>(pair)) % ranges;
    error = push(block, store, range, buffers.pushed);
    if (error == 0) error = pull(block, store, range, buffers.pulled);
  }
  if (threadIdx.x == 0) *buffers.error = error;
}

__global__ void pull_one(StoreHandle store, unsigned range, RangeBuffers buffers) {
  const int error = pull(gpusock::this_block(), store, range, buffers.pulled);
  if (threadIdx.x == 0) *buffers.error = error;
}

/// A rank, which is a worker and perhaps an owner.
class Rank {
 public:
  Rank(const baseline::StoreLoad& load, int rank)
      : load_(load),
        rank_(rank),
        group_(context_, rank, load.workers),
        pushed_(context_, load.floats),
        pulled_(context_, load.floats) {
    pushed_.copy_in(std::vector<float>(load.floats, 1));
  }

  gpusock::Endpoint listen(const gpusock::Endpoint& at) { return group_.listen(at); }
  void connect(const std::vector<gpusock::Endpoint>& addresses) { group_.connect(addresses); }
  void make_store() {
    const std::vector<std::vector<float>> ranges(static_cast<std::size_t>(load_.owners),
                                                 std::vector<float>(load_.floats));
    store_ = std::make_unique<Store>(group_, ranges, StoreOptions{.clock = Async()});
  }
  void start() { handle_ = store_->start(); }

  void run(int pairs) {
    launch(push_and_pull, handle_, static_cast<unsigned>(rank_), static_cast<unsigned>(load_.owners), pairs, buffers());
  }
  std::vector<float> pulled(int range) {
    launch(pull_one, handle_, static_cast<unsigned>(range), buffers());
    std::vector<float> weights(load_.floats);
    pulled_.copy_out(weights);
    return weights;
  }

 private:
  RangeBuffers buffers() { return {pushed_.data(), pulled_.data(), error_.data()}; }

  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, Arguments... arguments) {
    gpusock::launch(context_, {.block = kPushThreads, .stream = &stream_}, kernel, arguments...);
    stream_.synchronize();
    store_->check();
    if (error_[0] != 0) throw gpusock::Error(-error_[0], "a push or a pull");
  }

  const baseline::StoreLoad& load_;
  int rank_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  Group group_;
  gpusock::DeviceBuffer<float> pushed_, pulled_;
  gpusock::Mapped<int> error_{context_, 1};
  std::unique_ptr<Store> store_;
  StoreHandle handle_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Rank& at_rank(Ranks& ranks, int rank) { return *ranks[static_cast<std::size_t>(rank)]; }

Ranks connected(const baseline::StoreLoad& load, gpusock::LinkKind link) {
  gpusock::Endpoint at = gpusock::Endpoint::parse("127.0.0.1:0");
  at.link = link;
  Ranks ranks;
  std::vector<gpusock::Endpoint> addresses;
  for (int rank = 0; rank < load.workers; ++rank) {
    ranks.push_back(std::make_unique<Rank>(load, rank));
    addresses.push_back(ranks.back()->listen(at));
  }
  baseline::time_all(load.workers, [&](int rank) { at_rank(ranks, rank).connect(addresses); });
  for (const auto& rank : ranks) rank->make_store();  // all of them before one starts: ranks may share a GPU
  baseline::time_all(load.workers, [&](int rank) { at_rank(ranks, rank).start(); });
  return ranks;
}

}  // namespace

double time_store(const baseline::StoreLoad& load, gpusock::LinkKind link) {
  Ranks ranks = connected(load, link);
  const auto run = [&](int pairs) {
    return baseline::time_all(load.workers, [&](int rank) { at_rank(ranks, rank).run(pairs); });
  };
  run(load.warm_up());
  const double seconds = run(load.pairs);
  double sum = 0;
  for (int range = 0; range < load.owners; ++range) {
    const std::vector<float> weights = ranks.front()->pulled(range);
    if (std::count(weights.begin(), weights.end(), weights[0]) == static_cast<std::ptrdiff_t>(weights.size()))
      sum += static_cast<double>(weights[0]);
  }
  if (sum != static_cast<double>(load.pushes())) throw gpusock::Error(EIO, "a store: the owners' sums are wrong");
  return seconds;
}

}  // namespace param_sync::executor
