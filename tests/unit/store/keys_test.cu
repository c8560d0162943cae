// Pushes and pulls of rows by 64-bit keys.
#include "param_sync/keys.cuh"
#include "tests/unit/store/stores.cuh"

#include <map>
#include <random>
#include <set>
#include <variant>

namespace store_test {
namespace {

constexpr std::uint64_t kOfKey = 3;  // floats of a row

using Keys = std::vector<std::uint64_t>;

constexpr std::size_t kManyKeys = 20'000;

struct KeysJob {
  StoreHandle store;
  const std::uint64_t* keys = nullptr;
  std::uint64_t count = 0;
  float* floats = nullptr;
  bool pushes = false;
  int* result = nullptr;
};

template <class Group>
__device__ void move_keys(const Group& group, const KeysJob& job) {
  const auto deadline = gpusock::Deadline::after_ns(gpusock::kPatienceNs);
  const int error = job.pushes ? param_sync::push_keys(group, job.store, job.keys, job.count, job.floats, deadline)
                               : param_sync::pull_keys(group, job.store, job.keys, job.count, job.floats, deadline);
  if (group.thread_rank() == 0) *job.result = error;
}

__global__ void move_by_block(KeysJob job) { move_keys(gpusock::this_block(), job); }
__global__ void move_by_thread(KeysJob job) { move_keys(gpusock::this_thread(), job); }

/// What a rank pushes for a float of a key.
float pushed_of(int rank, std::uint64_t key, std::uint64_t i) {
  return static_cast<float>((key + i) % 17 + static_cast<std::uint64_t>(rank));
}

/// A rank's call.
class Mover {
 public:
  Mover(Rank& rank, const Keys& keys)
      : rank_(rank),
        keys_(rank.context, std::max<std::size_t>(1, keys.size())),
        floats_(rank.context, std::max<std::size_t>(1, keys.size() * kOfKey)),
        count_(keys.size()) {
    if (!keys.empty()) keys_.copy_in(keys);
    job_ = {.store = rank.job.store,
            .keys = keys_.data(),
            .count = count_,
            .floats = floats_.data(),
            .result = result_.data()};
    result_[0] = -EINPROGRESS;
    std::vector<float> all;
    for (const std::uint64_t key : keys) {
      for (std::uint64_t i = 0; i < kOfKey; ++i) all.push_back(pushed_of(rank.job.rank, key, i));
    }
    if (!all.empty()) floats_.copy_in(all);
  }

  void start(bool pushes, unsigned threads = 5) {
    job_.pushes = pushes;
    gpusock::launch(rank_.context, {.block = threads, .stream = &stream_},
                    threads == 1 ? move_by_thread : move_by_block, job_);
  }
  int wait() {
    stream_.synchronize();
    return result_[0];
  }
  int push() {
    start(true);
    return wait();
  }
  /// Returns the first error.
  int push_and_pull() {
    const int error = push();
    if (error != 0) return error;
    start(false);
    return wait();
  }
  std::vector<float> pull(unsigned threads = 5) {
    start(false, threads);
    EXPECT_EQ(wait(), 0);
    std::vector<float> all(std::max<std::size_t>(1, count_ * kOfKey));
    floats_.copy_out(all);
    all.resize(count_ * kOfKey);
    return all;
  }

 private:
  Rank& rank_;
  gpusock::Stream stream_{rank_.context};
  gpusock::DeviceBuffer<std::uint64_t> keys_;
  gpusock::DeviceBuffer<float> floats_;
  std::uint64_t count_;
  gpusock::Mapped<int> result_{rank_.context, 1};
  KeysJob job_;
};

StoreOptions of_keys(const param_sync::AnyClock& clock, std::size_t keys_max, std::size_t rows_max) {
  return {.clock = clock, .row_floats = kOfKey, .rows_max = rows_max, .keys_max = keys_max};
}

/// Some of the keys from all over the range of 64 bits, which several ranks use.
Keys some_of(const Keys& keys, std::mt19937_64& random, unsigned of) {
  Keys some;
  for (const std::uint64_t key : keys) {
    if (random() % of == 0) some.push_back(key);
  }
  return some;
}

Keys random_keys(std::size_t count, std::mt19937_64& random) {
  std::set<std::uint64_t> all{0, 1, param_sync::codec::KeyCells::kKeyMax};
  while (all.size() < count) all.insert(random() >> random() % 60);
  return {all.begin(), all.end()};
}

/// Sums by key, as they must be.
using Sums = std::map<std::uint64_t, std::array<float, kOfKey>>;

void add(Sums& sums, int rank, const Keys& keys) {
  for (const std::uint64_t key : keys) {
    for (std::uint64_t i = 0; i < kOfKey; ++i) sums[key][i] += pushed_of(rank, key, i);
  }
}

std::vector<float> of(const Sums& sums, const Keys& keys) {
  std::vector<float> all;
  for (const std::uint64_t key : keys) {
    const auto found = sums.find(key);
    for (std::uint64_t i = 0; i < kOfKey; ++i) all.push_back(found == sums.end() ? 0 : found->second[i]);
  }
  return all;
}

/// Against sums by key. The last ones are many rings.
TEST(Keys, AreSummedAtTheirOwners) {
  std::mt19937_64 random(3);
  for (const param_sync::AnyClock& clock : {param_sync::AnyClock(Bsp()), param_sync::AnyClock(Async())}) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{300}, kManyKeys}) {
      SCOPED_TRACE(count);
      const Keys all = random_keys(count, random);
      StoreOptions options = of_keys(clock, count, count);
      options.push_format = options.pull_format = count == 300 ? param_sync::WireFormat::bfloat16
                                                               : param_sync::WireFormat::float32;
      Stores stores(options, {{1, 2, 3}, std::vector<float>(6)});
      Sums sums;
      for (int step = 0; step < 3; ++step) {
        std::vector<std::unique_ptr<Mover>> movers;
        for (int rank = 0; rank < kRanks; ++rank) {
          const Keys keys = some_of(all, random, 3);
          add(sums, rank, keys);
          movers.push_back(std::make_unique<Mover>(stores[rank], keys));
          movers.back()->start(true, rank == 1 ? 1 : 5);
        }
        for (const auto& mover : movers) ASSERT_EQ(mover->wait(), 0);
      }
      for (int rank = 0; rank < kRanks; ++rank) Mover(stores[rank], {}).pull();  // all pushes are applied
      std::vector<std::unique_ptr<Mover>> movers;
      for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(Mover(stores[rank], all).pull(rank == 0 ? 1 : 64), of(sums, all));
      EXPECT_EQ(stores[0].store->owner(2), 0);
      EXPECT_EQ(stores[0].store->owner(4), 2);
    }
  }
}

TEST(Keys, ThatAreNamedAgainAreNotSentAgain) {
  std::mt19937_64 random(4);
  const Keys keys = random_keys(200, random), others = some_of(keys, random, 2);
  Stores stores(of_keys(Async(), 200, 200), {});
  const auto asked_by = [&](const Keys& of) {
    const auto asked = [&] {
      std::uint64_t sum = 0;
      for (const param_sync::StoreTraffic& range : stores[1].store->traffic()) sum += range.asked_bytes;
      return sum;
    };
    const std::uint64_t before = asked();
    Mover(stores[1], of).pull();
    return asked() - before;
  };
  constexpr std::uint64_t kRequests = 24 * kRanks;
  EXPECT_EQ(asked_by(keys), kRequests + 8 * keys.size());
  EXPECT_EQ(asked_by(keys), kRequests);
  EXPECT_EQ(Mover(stores[1], keys).push(), 0);
  EXPECT_EQ(asked_by(keys), kRequests);
  std::uint64_t pushed = 0;
  for (const param_sync::StoreTraffic& range : stores[1].store->traffic()) pushed += range.pushed_bytes;
  EXPECT_EQ(pushed, kRequests + keys.size() * kOfKey * 4) << "the pull has named them";
  EXPECT_EQ(asked_by(others), kRequests + 8 * others.size());
  Sums sums;
  add(sums, 1, keys);
  EXPECT_EQ(Mover(stores[1], others).pull(), of(sums, others));
}

__global__ void pull_by_number(KeysJob job, unsigned range, const std::uint32_t* row) {
  *job.result = param_sync::pull_rows(gpusock::this_thread(), job.store, range, row, 1, job.floats);
}

/// A row's number is sent although the key before was the same number.
TEST(Keys, AreNotTakenForNumbersOfRows) {
  constexpr std::uint32_t kNumber = 5;
  Stores stores(of_keys(Async(), 10, 10), {});
  Rank& rank = stores[0];
  ASSERT_EQ(Mover(rank, {kNumber}).push(), 0);
  const auto traffic = [&](unsigned range) { return rank.store->traffic()[range]; };
  unsigned range = 0;
  while (traffic(range).pushed_bytes == 24) ++range;  // the owners of other keys
  gpusock::DeviceBuffer<std::uint32_t> row(rank.context, 1);
  gpusock::DeviceBuffer<float> floats(rank.context, kOfKey);
  row.copy_in(std::vector{kNumber});
  const KeysJob job{.store = rank.job.store, .floats = floats.data(), .result = rank.job.result};
  gpusock::launch(rank.context, {.stream = &rank.stream}, pull_by_number, job, range, row.data());
  ASSERT_EQ(rank.wait(), 0);
  EXPECT_EQ(traffic(range).asked_bytes, 24 + 4);
}

/// Consistent hashing: no owner has more than 1.5 times the mean, however near to each other keys are.
TEST(Keys, AreSpreadOverAllOwners) {
  Keys keys;
  for (std::uint64_t key = 1'000'000; key < 1'006'000; ++key) keys.push_back(key);
  Stores stores(of_keys(Async(), 3'000, 6'000), {});
  ASSERT_EQ(Mover(stores[0], keys).push(), 0);
  for (const param_sync::StoreTraffic& range : stores[0].store->traffic()) {
    const double share = static_cast<double>(range.pushed_bytes - 24) /
                         static_cast<double>(keys.size() * (8 + kOfKey * 4));
    EXPECT_GT(share * kRanks, 0.5);
    EXPECT_LT(share * kRanks, 1.5);
  }
}

TEST(Keys, ARankWithoutRoomSaysSoAndServesTheOthers) {
  Keys keys;
  for (std::uint64_t key = 0; key < 100; ++key) keys.push_back(key * key);
  Stores stores(of_keys(Async(), 10, 100), {});
  EXPECT_NE(Mover(stores[1], keys).push_and_pull(), 0);
  const std::string worker = failure_of(stores[1]);
  EXPECT_TRUE(worker.find(" has no room for a key that this rank has named: see StoreOptions::keys_max") !=
                  std::string::npos ||
              worker.find("rank 1 has named more keys than this rank has room for") != std::string::npos)
      << worker;
  EXPECT_EQ(Mover(stores[2], {}).push_and_pull(), 0) << "the others go on";
}

TEST(Keys, WrongCallsAreRefused) {
  Stores stores(of_keys(Async(), 10, 3), {{1, 2, 3}});
  EXPECT_EQ(Mover(stores[0], {1, 2, 3, 4}).push(), -EINVAL);
  EXPECT_EQ(Mover(stores[0], {1, ~std::uint64_t{0}}).push(), -EINVAL);
  EXPECT_EQ(Mover(stores[0], {1, param_sync::codec::KeyCells::kKeyMax}).push(), 0);
  stores[0].store->check();
  for (const Keys& wrong : {Keys{3, 3}, Keys{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}) {
    Stores others(of_keys(Async(), 10, 10), {});
    EXPECT_NE(Mover(others[1], wrong).push_and_pull(), 0);
  }
  Stores none({.clock = Async(), .row_floats = kOfKey, .rows_max = 1}, {{1, 2, 3}});
  EXPECT_EQ(Mover(none[0], {1}).push(), -EINVAL);
  Groups groups(1);
  EXPECT_NE(error_of<gpusock::Error>([&] { Store(groups.group(0), Weights{}, {.keys_max = 5}); }).find("give rows_max"),
            std::string::npos);
}

}  // namespace
}  // namespace store_test
