// Matrix completion by stochastic gradient descent: predicts ratings from others. A rating is near the product of two
// rows of factors, the user's and the item's. Each rank has the rows of its users in its device memory. Items' rows are
// shared through a parameter server, by 64-bit keys: hashes of what the items are called.
//
// In a step a rank pulls rows of items, learns from some of its ratings, and pushes by how much the rows have changed.
// The threads of its blocks learn at the same time, and write rows without locks (Recht et al., "Hogwild!: a lock-free
// approach to parallelizing stochastic gradient descent", NIPS 2011).
#include "examples/clock_option.hpp"
#include "examples/device_memory.hpp"
#include "examples/ratings.hpp"
#include "examples/rank_threads.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include "param_sync/keys.cuh"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using examples::in_device;

struct Options {
  int ranks = 4;
  unsigned blocks = 2, threads = 32;
  ratings::Shape data;
  std::uint32_t factors = 4, batch = 500;
  int epochs = 20;
  double rate = 0.03;
  double delay_ms = 0;
  std::string clock = "bsp", json_file;
  bool locks = false;
};

/// What a rank's kernels have, by value. Pointers point to device memory.
struct Job {
  param_sync::StoreHandle store;
  std::uint32_t factors = 0;
  float rate = 0;
  const ratings::Rating* ratings = nullptr;
  float *user_rows = nullptr, *item_rows = nullptr, *pulled = nullptr;  ///< of items: now, and before the batch
  unsigned *user_locks = nullptr, *item_locks = nullptr;                ///< user_locks is null: threads take none
  int* error = nullptr;                                                 ///< mapped
};

__global__ void pull_items(Job job, const std::uint64_t* keys, std::size_t count) {
  const int error = param_sync::pull_keys(gpusock::this_block(), job.store, keys, count, job.pulled);
  for (std::size_t i = threadIdx.x; i < count * job.factors; i += blockDim.x) job.item_rows[i] = job.pulled[i];
  if (threadIdx.x == 0 && error != 0) *job.error = error;
}

__global__ void push_items(Job job, const std::uint64_t* keys, std::size_t count) {
  const auto block = gpusock::this_block();
  for (std::size_t i = threadIdx.x; i < count * job.factors; i += blockDim.x) {
    job.pulled[i] = job.item_rows[i] - job.pulled[i];
  }
  block.sync();
  const int error = param_sync::push_keys(block, job.store, keys, count, job.pulled);
  if (threadIdx.x == 0 && error != 0) *job.error = error;
}

/// A step of gradient descent for one rating. If another thread writes the same float meanwhile, one of the two changes
/// is lost.
__device__ void learn_one(const Job& job, float* user, float* item, float value) {
  using Float = cuda::atomic_ref<float, cuda::thread_scope_device>;
  constexpr auto kRelaxed = cuda::memory_order_relaxed;  // each float for itself; a lock, if any, orders them
  for (std::uint32_t i = 0; i < job.factors; ++i) {
    value -= Float(user[i]).load(kRelaxed) * Float(item[i]).load(kRelaxed);
  }
  for (std::uint32_t i = 0; i < job.factors; ++i) {
    const float of_user = Float(user[i]).load(kRelaxed), of_item = Float(item[i]).load(kRelaxed);
    Float(user[i]).store(of_user + job.rate * value * of_item, kRelaxed);
    Float(item[i]).store(of_item + job.rate * value * of_user, kRelaxed);
  }
}

/// Learns from the ratings [begin, end). With locks, a thread takes those of both rows. If it does not get the second
/// one, it lets go of the first one.
__global__ void learn(Job job, std::size_t begin, std::size_t end) {
  using Lock = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = begin + std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += threads) {
    const ratings::Rating rating = job.ratings[i];
    float* const user = job.user_rows + std::size_t{rating.user} * job.factors;
    float* const item = job.item_rows + std::size_t{rating.item} * job.factors;
    if (job.user_locks == nullptr) {
      learn_one(job, user, item, rating.value);
      continue;
    }
    const Lock first(job.user_locks[rating.user]), second(job.item_locks[rating.item]);
    for (bool done = false; !done;) {
      if (first.exchange(1, cuda::memory_order_acquire) == 0) {
        if (second.exchange(1, cuda::memory_order_acquire) == 0) {
          learn_one(job, user, item, rating.value);
          second.store(0, cuda::memory_order_release);
          done = true;
        }
        first.store(0, cuda::memory_order_release);
      }
      if (!done) __nanosleep(100);
    }
  }
}

/// Of all ranks.
struct Outcome {
  ratings::Errors training, test;
  ratings::Curve curve;
  std::size_t rows = 0, pushed = 0, pulled = 0, asked = 0;  ///< rows of pushes; bytes: see StoreTraffic
  double seconds = 0;                                       ///< of the slowest rank
};

/// A rank, whose kernels run in this process.
class Rank {
 public:
  Rank(const Options& options, int rank)
      : options_(options),
        data_(options.data, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(options.ranks)),
        batches_(data_.training, steps()),
        group_(context_, rank, options.ranks) {
    address = group_.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
    // Items begin with 0, as rows of a store do. Users do not: otherwise all gradients would be 0, and stay so.
    std::seed_seq seeds{static_cast<int>(options.data.seed % 1'000'000), rank};
    std::mt19937_64 random(seeds);
    user_rows_.copy_in(ratings::random_floats(random, user_rows_.size(), 0.3f));
    param_sync::StoreOptions of_store;
    of_store.clock = param_sync::clock_of(options.clock);
    of_store.row_floats = options.factors;
    of_store.rows_max = of_store.keys_max = options.data.items;
    store_ = std::make_unique<param_sync::Store>(group_, std::vector<std::vector<float>>{}, of_store);
  }

  void run(const std::vector<gpusock::Endpoint>& addresses) {
    group_.connect(addresses);
    const Job job{.store = store_->start(),
                  .factors = options_.factors,
                  .rate = static_cast<float>(options_.rate),
                  .ratings = ratings_.data(),
                  .user_rows = user_rows_.data(),
                  .item_rows = item_rows_.data(),
                  .pulled = pulled_.data(),
                  .user_locks = options_.locks ? locks_.data() : nullptr,
                  .item_locks = locks_.data() + users(),
                  .error = error_.data()};
    std::mt19937_64 random(options_.data.seed * 1'000 + static_cast<std::uint64_t>(group_.rank()));
    std::exponential_distribution<double> delay;
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t batch = 0; batch < steps(); ++batch) {
        const std::uint64_t* const keys = keys_.data() + batches_.keys_begin[batch];
        const std::size_t count = batches_.keys_begin[batch + 1] - batches_.keys_begin[batch];
        launch(1, pull_items, job, keys, count);
        launch(options_.blocks, learn, job, batches_.begin[batch], batches_.begin[batch + 1]);
        if (options_.delay_ms > 0) {
          wait();
          std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options_.delay_ms * delay(random)));
        }
        launch(1, push_items, job, keys, count);
      }
      if (!options_.json_file.empty()) launch(1, pull_items, job, all_keys_.data(), all_keys_.size());
      wait();
      seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (!options_.json_file.empty()) curve_.epochs.push_back({seconds_, errors_of(data_.test)});
    }
    traffic_ = store_->traffic();
    // Once the first of these pulls is answered, all owners have applied this rank's pushes. So the second one gets the
    // pushes of all ranks, whatever the clock is.
    for (int i = 0; i < 2; ++i) {
      launch(1, pull_items, job, all_keys_.data(), all_keys_.size());
      wait();
      group_.wait(group_.barrier());
    }
    store_->stop();
  }

  void add_to(Outcome& all) const {
    all.training += errors_of(data_.training);
    all.test += errors_of(data_.test);
    all.curve += curve_;
    all.rows += batches_.keys.size() * static_cast<std::size_t>(options_.epochs);
    for (const param_sync::StoreTraffic& range : traffic_) {
      all.pushed += range.pushed_bytes, all.pulled += range.pulled_bytes, all.asked += range.asked_bytes;
    }
    all.seconds = std::max(all.seconds, seconds_);
  }

  gpusock::Endpoint address;

 private:
  /// With the rows of all items that were pulled last.
  ratings::Errors errors_of(const std::vector<ratings::Rating>& ratings) const {
    std::vector<float> users(user_rows_.size()), items(item_rows_.size());
    user_rows_.copy_out(users);
    item_rows_.copy_out(items);
    ratings::Errors found;
    found.add(ratings, users, items, options_.factors);
    return found;
  }
  /// Of an epoch, as many on all ranks: otherwise the clock would let some wait for pushes that never come.
  std::size_t steps() const {
    const std::size_t of_step = std::size_t{options_.batch} * static_cast<std::size_t>(options_.ranks);
    return (options_.data.ratings + of_step - 1) / of_step;
  }
  std::size_t users() const { return options_.data.users / static_cast<std::size_t>(options_.ranks) + 1; }
  template <class... Parameters, class... Arguments>
  void launch(unsigned blocks, void (*kernel)(Parameters...), const Arguments&... arguments) {
    gpusock::launch(context_, {.grid = blocks, .block = options_.threads, .stream = &stream_}, kernel, arguments...);
  }
  void wait() {
    stream_.synchronize();
    store_->check();
    if (error_[0] != 0) throw gpusock::Error(-error_[0], "cannot push or pull rows by keys");
  }

  const Options& options_;
  ratings::Data data_;
  ratings::Batches batches_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  gpusock::DeviceBuffer<ratings::Rating> ratings_ = in_device(context_, batches_.ratings);
  gpusock::DeviceBuffer<std::uint64_t> keys_ = in_device(context_, batches_.keys);
  gpusock::DeviceBuffer<std::uint64_t> all_keys_ = in_device(context_, ratings::keys_of(options_.data.items));
  gpusock::DeviceBuffer<float> user_rows_{context_, users() * options_.factors};
  gpusock::DeviceBuffer<float> item_rows_{context_, std::size_t{options_.data.items} * options_.factors};
  gpusock::DeviceBuffer<float> pulled_{context_, item_rows_.size()};
  gpusock::DeviceBuffer<unsigned> locks_ = in_device(context_, std::vector<unsigned>(users() + options_.data.items));
  gpusock::Mapped<int> error_{context_, 1};
  param_sync::Group group_;
  std::unique_ptr<param_sync::Store> store_;
  std::vector<param_sync::StoreTraffic> traffic_;
  ratings::Curve curve_;
  double seconds_ = 0;
};

int complete(const Options& options) {
  std::optional<gpusock::program::JsonOutput> json;  // opened first: what cannot be written is told at once
  if (!options.json_file.empty()) json.emplace(options.json_file);
  const std::vector<std::unique_ptr<Rank>> ranks = examples::run_ranks<Rank>("matrix_completion", options);
  Outcome all;
  for (const auto& rank : ranks) rank->add_to(all);
  if (!std::isfinite(all.training.rms() + all.test.rms())) {
    throw std::runtime_error("the factors have grown without limit: take a smaller --lr or --batch");
  }
  if (json) {
    json->write(all.curve.json(all.training, all.test));
    json->close();
  }
  const std::size_t named = all.asked + all.pushed - all.rows * options.factors * sizeof(float);
  char text[400];
  std::snprintf(text, sizeof text,
                "RMSE %.4f of the ratings to learn from, %.4f of others (noise: %.4f)\n"
                "%.2f s; %zu rows were pulled and pushed\n"
                "pulled %zu bytes, pushed %zu; keys, with the requests, are %zu of these (%.1f %%)\n",
                all.training.rms(), all.test.rms(), double{ratings::kNoise}, all.seconds, all.rows,
                all.pulled + all.asked, all.pushed, named,
                100 * static_cast<double>(named) / static_cast<double>(all.pulled + all.asked + all.pushed));
  gpusock::program::print(text);
  return gpusock::program::kSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Predicts ratings from others, by factors that ranks share through a parameter server (docs/stores.md).");
  arguments.number("--ranks", options.ranks, "Threads of this process, each with a context", 1, 16);
  arguments.number("--blocks", options.blocks, "Of each rank, which learn at the same time", 1u, 256u);
  arguments.number("--threads", options.threads, "Of each block", 1u, 256u);
  arguments.flag("--locks", options.locks, "A thread locks the rows that it changes");
  arguments.number("--users", options.data.users, "Who give ratings", 16u, 1u << 20);
  arguments.number("--items", options.data.items, "Which get ratings", 16u, 1u << 16);
  arguments.number("--ratings", options.data.ratings, "Random ones, a tenth of them to test", 16u, 1u << 24);
  arguments.number("--seed", options.data.seed, "Of the ratings", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.number("--factors", options.factors, "Of each user and item; the truth has 4", 1u, 64u);
  arguments.number("--epochs", options.epochs, "How often each rating is learned from", 1, 1 << 20);
  arguments.number("--batch", options.batch, "Of a rank: how many ratings it learns from in a step", 1u, 1u << 24);
  arguments.number("--lr", options.rate, "Learning rate", 1e-6, 1e3);
  arguments.number("--delay-ms", options.delay_ms,
                   "A rank sleeps after each batch, so long on average: a random time, exponentially distributed", 0.0,
                   1e6);
  arguments.json(options.json_file, "What predictions miss after each epoch; ranks then pull all items for it");
  examples::take_clock(arguments, options.clock, "rows");
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("matrix_completion", [&] { return complete(options); });
}
