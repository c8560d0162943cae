// A rank that trains with a store, and prints what its history says: what a program does that is written from
// docs/stores.md. The test that starts it computes the same weights, stops some ranks for a while, and ends some.
#include "param_sync/cached_range.cuh"
#include "param_sync/store.cuh"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr unsigned kRanges = 5;
constexpr int kStepsOfLaunch = 3;  // after these the rank says how far it is
constexpr unsigned kDelayMaxNs = 500'000;
constexpr unsigned kThreads = 2;         // of a block
constexpr std::uint64_t kPushesMax = 4;  // with a cache and async

/// The first range is longer than what an owner takes in one piece.
__host__ __device__ inline std::uint64_t floats_of(unsigned range) { return range == 0 ? 20'000 : 3 * range + 1; }

__host__ __device__ inline std::uint64_t begin_of(unsigned range) {
  std::uint64_t begin = 0;
  for (unsigned before = 0; before < range; ++before) begin += floats_of(before);
  return begin;
}

constexpr unsigned kModulus = 13;  // of the numbers that weights begin with, and of gradients

/// Weights stay whole numbers, so sums are exact in any order. A gradient depends on the weight that was read: so it
/// shows which one that was.
__device__ inline float gradient_of(int rank, int step, std::uint64_t i, float weight) {
  const std::uint64_t number = 5 * static_cast<std::uint64_t>(weight) + 7 * i +
                               static_cast<std::uint64_t>(3 * rank + step);
  return static_cast<float>(number % kModulus);
}

/// A number below `limit`, which looks random.
__device__ inline unsigned random_below(unsigned limit, std::uint64_t seed) {
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
  return static_cast<unsigned>((seed ^ seed >> 31) % limit);
}

/// What the kernels use. Pointers to floats point to as many as there are weights.
struct Job {
  param_sync::StoreHandle store;
  int rank = 0;
  std::uint64_t seed = 0;
  float* weights = nullptr;
  float* gradients = nullptr;
  float* pushed = nullptr;                        ///< sums of all gradients
  param_sync::CachedVersion* versions = nullptr;  ///< by range; null: each read is a pull
  std::uint64_t pushes_max = 0;                   ///< see CachedRange
  int* results = nullptr;                         ///< mapped, by block
};

__device__ int train_range(const Job& job, int step, unsigned range) {
  const auto block = gpusock::this_block();
  const std::uint64_t begin = begin_of(range);
  const bool is_cached = job.versions != nullptr;
  const param_sync::CachedRange cache{job.weights + begin, is_cached ? job.versions + range : nullptr, nullptr,
                                      job.pushes_max};
  const int error = is_cached ? param_sync::pull_cached(block, job.store, range, cache)
                              : param_sync::pull(block, job.store, range, job.weights + begin);
  if (error != 0) return error;
  for (std::uint64_t i = threadIdx.x; i < floats_of(range); i += blockDim.x) {
    job.gradients[begin + i] = gradient_of(job.rank, step, i, job.weights[begin + i]);
    job.pushed[begin + i] += job.gradients[begin + i];
  }
  const auto number = static_cast<std::uint64_t>((job.rank * 1'000 + step) * static_cast<int>(kRanges)) + range;
  __nanosleep(random_below(kDelayMaxNs, job.seed + number * 0x9e3779b97f4a7c15u));
  __syncthreads();
  return is_cached ? param_sync::push_cached(block, job.store, range, job.gradients + begin, cache)
                   : param_sync::push(block, job.store, range, job.gradients + begin);
}

/// Steps first to last - 1. Each block has a connection of its own.
__global__ void train(Job job, int first, int last) {
  int error = 0;
  for (int step = first; step < last && error == 0; ++step) {
    for (unsigned range = blockIdx.x; range < kRanges && error == 0; range += gridDim.x) {
      error = train_range(job, step, range);
    }
  }
  if (threadIdx.x == 0) job.results[blockIdx.x] = error;
}

__global__ void read(Job job) {
  int error = 0;
  for (unsigned range = blockIdx.x; range < kRanges && error == 0; range += gridDim.x) {
    error = param_sync::pull(gpusock::this_block(), job.store, range, job.weights + begin_of(range));
  }
  if (threadIdx.x == 0) job.results[blockIdx.x] = error;
}

struct Arguments {
  int rank;
  int ranks;
  std::string link;
  std::string clock;
  int steps;
  unsigned connections;  // to each owner, and blocks that train
  std::uint64_t seed;
  bool has_cache;
};

std::string next_line() {
  std::string line;
  std::getline(std::cin, line);
  return line;
}

void connect(param_sync::Group& group, const Arguments& arguments) {
  const auto at = group.listen(gpusock::Endpoint::parse("127.0.0.1:0,link=" + arguments.link));
  std::cout << "listening " << at.host_port() << std::endl;
  std::istringstream all(next_line());
  std::string address;
  std::vector<gpusock::Endpoint> addresses;
  while (all >> address) addresses.push_back(gpusock::Endpoint::parse(address + ",link=" + arguments.link));
  group.connect(addresses);
}

std::vector<std::vector<float>> initial_weights() {
  std::vector<std::vector<float>> all;
  for (unsigned range = 0; range < kRanges; ++range) {
    std::vector<float>& weights = all.emplace_back();
    for (std::uint64_t i = 0; i < floats_of(range); ++i) weights.push_back(static_cast<float>(i % kModulus));
  }
  return all;
}

param_sync::StoreOptions options_of(const Arguments& arguments) {
  return {
      .clock = param_sync::clock_of(arguments.clock), .connections = arguments.connections, .history_events = 1'000};
}

class Rank {
 public:
  Rank(gpusock::Context& context, param_sync::Group& group, const Arguments& arguments)
      : context_(context),
        group_(group),
        arguments_(arguments),
        store_(group, initial_weights(), options_of(arguments)) {
    job_.rank = arguments.rank;
    job_.seed = arguments.seed;
    job_.weights = weights_.data();
    job_.gradients = gradients_.data();
    job_.pushed = pushed_.data();
    job_.results = results_.data();
    if (arguments.has_cache) job_.versions = versions_.data();
    if (arguments.clock == "async") job_.pushes_max = kPushesMax;
    pushed_.copy_in(std::vector<float>(pushed_.size()));
  }

  /// Connects, trains when it is told to, and prints all that there is to say. Throws gpusock::Error.
  void run() {
    job_.store = store_.start();
    std::cout << "started" << std::endl;
    next_line();
    for (int step = 0; step < arguments_.steps; step += kStepsOfLaunch) {
      launch(train, step, std::min(step + kStepsOfLaunch, arguments_.steps));
      std::cout << "trained" << std::endl;
    }
    launch(read);  // the owners have then applied this rank's pushes
    meet();
    launch(read);
    meet();  // a rank whose store ends is lost for the others
    print("weights", weights_);
    print("pushed", pushed_);
    std::cout << param_sync::to_json_lines(arguments_.rank, store_.history()) << std::flush;
  }

 private:
  template <class... Parameters, class... Values>
  void launch(void (*kernel)(Job, Parameters...), Values... values) {
    gpusock::launch(context_, {.grid = arguments_.connections, .block = kThreads, .stream = &stream_}, kernel, job_,
                    values...);
    stream_.synchronize();
    store_.check();
    for (unsigned block = 0; block < arguments_.connections; ++block) {
      if (results_[block] != 0)
        throw gpusock::Error(-results_[block], "a call has failed, and the store does not say why");
    }
  }

  void meet() { group_.wait(group_.barrier()); }

  static void print(const char* name, const gpusock::DeviceBuffer<float>& buffer) {
    std::vector<float> all(buffer.size());
    buffer.copy_out(all);
    std::cout << name;
    for (const float number : all) std::cout << ' ' << number;
    std::cout << '\n';
  }

  gpusock::Context& context_;
  param_sync::Group& group_;
  const Arguments& arguments_;
  gpusock::Stream stream_{context_};
  gpusock::DeviceBuffer<float> weights_{context_, begin_of(kRanges)};
  gpusock::DeviceBuffer<float> gradients_{context_, begin_of(kRanges)};
  gpusock::DeviceBuffer<float> pushed_{context_, begin_of(kRanges)};
  gpusock::DeviceBuffer<param_sync::CachedVersion> versions_{context_, kRanges};
  gpusock::Mapped<int> results_{context_, arguments_.connections};
  Job job_;
  param_sync::Store store_;
};

}  // namespace

int main(int, char** argv) try {
  const Arguments arguments{std::stoi(argv[1]),
                            std::stoi(argv[2]),
                            argv[3],
                            argv[4],
                            std::stoi(argv[5]),
                            static_cast<unsigned>(std::stoul(argv[6])),
                            std::stoull(argv[7]),
                            argv[8] == std::string("cached")};
  gpusock::Context context;
  param_sync::Group group(context, arguments.rank, arguments.ranks);
  connect(group, arguments);
  Rank rank(context, group, arguments);
  try {
    rank.run();
  } catch (const gpusock::Error& error) {
    std::cout << "error " << error.what() << std::endl;
    next_line();  // this rank serves the others until it is told that they have ended
    return 1;
  }
} catch (const gpusock::Error& error) {
  std::cout << "error " << error.what() << std::endl;
  return 1;
}
