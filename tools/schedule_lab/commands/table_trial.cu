#include "commands/table_trial.hpp"

#include <param_sync/row_table.hpp>
#include <param_sync/executor/wait.cuh>

#include <algorithm>
#include <chrono>

namespace param_sync::commands {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // more threads of a block would share one processor
#else
constexpr unsigned kThreads = 128;
#endif

/// Returns a float between 0 and 8 with one binary digit after the point. Sums of such floats are exact.
constexpr float value_of(std::uint32_t column) { return static_cast<float>(column % 16) / 2; }

/// How a block adds: without locks, while it holds the lock of the row, or while it holds the only lock.
enum class Locks : int { none, of_rows, one };

/// Adds rows to keys that are spread over all rows. Each block begins with a different key.
__global__ void add_rows(Rows rows, std::uint64_t* locks, Locks kind, std::uint64_t keys, std::uint64_t additions,
                         const float* values) {
  const auto block = gpusock::this_block();
  const std::uint64_t begin = additions * blockIdx.x / gridDim.x, end = additions * (blockIdx.x + 1) / gridDim.x;
  auto* const sums = reinterpret_cast<float*>(rows.pairs);
  for (std::uint64_t i = begin; i < end; ++i) {
    const std::uint64_t key = i * 7919 % keys;
    if (kind == Locks::none) {
      rows.add(block, key, values);
      continue;
    }
    const auto cell = static_cast<std::uint64_t>(rows.cell_of(key));
    const executor::DeviceWord lock(locks[kind == Locks::one ? 0 : cell]);
    if (block.thread_rank() == 0) {
      for (executor::Backoff backoff(20, 1'000); lock.exchange(1, cuda::memory_order_acquire) != 0;) backoff.pause();
    }
    block.sync();
    for (std::uint32_t k = threadIdx.x; k < rows.columns; k += blockDim.x) {
      sums[cell * 2 * rows.pairs_of_row() + k] += values[k];
    }
    block.sync();
    if (block.thread_rank() == 0) lock.store(0, cuda::memory_order_release);
  }
}

class TableTrial {
 public:
  explicit TableTrial(const TableTrialSettings& settings)
      : settings_(settings),
        table_(context_, settings.rows, settings.columns),
        locks_(context_, table_.rows().cells),
        values_(context_, settings.columns) {
    std::vector<float> values;
    for (std::uint32_t column = 0; column < settings.columns; ++column) values.push_back(value_of(column));
    values_.copy_in(values);
    locks_.copy_in(std::vector<std::uint64_t>(locks_.size()));
  }

  double seconds_of(Locks kind) {
    table_.clear();
    const auto start = std::chrono::steady_clock::now();
    gpusock::launch(context_, {.grid = settings_.blocks, .block = kThreads}, add_rows, table_.rows(), locks_.data(),
                    kind, settings_.rows, settings_.additions, values_.data());
    context_.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// True if each sum equals what was added.
  bool conserved() const {
    std::vector<std::uint64_t> times_of(settings_.rows);  // by key
    for (std::uint64_t i = 0; i < settings_.additions; ++i) ++times_of[i * 7919 % settings_.rows];
    const RowTable::Sums sums = table_.sums();
    const auto unused = static_cast<std::size_t>(std::count(times_of.begin(), times_of.end(), 0));
    bool right = sums.keys.size() == times_of.size() - unused;
    for (std::size_t row = 0; right && row < sums.keys.size(); ++row) {
      const std::uint64_t times = times_of[sums.keys[row]];
      for (std::uint32_t column = 0; column < settings_.columns; ++column) {
        const double wanted = static_cast<double>(times) * static_cast<double>(value_of(column));
        right = right && static_cast<double>(sums.values[row * settings_.columns + column]) == wanted;
      }
    }
    return right;
  }

 private:
  TableTrialSettings settings_;
  gpusock::Context context_;
  RowTable table_;
  gpusock::DeviceBuffer<std::uint64_t> locks_;
  gpusock::DeviceBuffer<float> values_;
};

}  // namespace

std::vector<TableTime> try_tables(const TableTrialSettings& settings) {
  const std::pair<Locks, const char*> kinds[] = {
      {Locks::none, "no locks"}, {Locks::of_rows, "a lock for each row"}, {Locks::one, "one lock"}};
  std::vector<TableTime> times;
  std::vector<std::vector<double>> seconds(std::size(kinds));
  for (const auto& [kind, how] : kinds) times.push_back({how, 0, true});
  TableTrial trial(settings);
  for (int i = 0; i < settings.repeats; ++i) {
    for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
      seconds[kind].push_back(trial.seconds_of(kinds[kind].first));
      times[kind].conserved = times[kind].conserved && trial.conserved();
    }
  }
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    std::sort(seconds[kind].begin(), seconds[kind].end());
    times[kind].median_s = seconds[kind][seconds[kind].size() / 2];
  }
  return times;
}

}  // namespace param_sync::commands
