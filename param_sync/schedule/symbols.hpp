#pragma once
/// @file What chunks hold, for the checker: whose contributions, and how often each.

#include "param_sync/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace param_sync::schedule {

/// The values of all chunks at all ranks. A value has two bits for each rank: its contribution is in it; it is in it
/// more than once. That is exact for sums, since nothing takes a contribution out again.
class Symbols {
 public:
  enum class State : std::uint8_t { undefined, sum, applied };

  struct Value {
    State state = State::undefined;
    std::vector<std::uint64_t> present;
    std::vector<std::uint64_t> repeated;
  };

  /// The values before the schedule runs. What they take is in price_of_check().
  explicit Symbols(const Schedule& schedule);

  Value get(int rank, int chunk) const;
  void set(int rank, int chunk, const Value& value);
  State state(int rank, int chunk) const { return states_[index(rank, chunk)]; }

  /// Adds `value` to a chunk.
  void add(int rank, int chunk, const Value& value);
  void apply(int rank, int chunk) { states_[index(rank, chunk)] = State::applied; }

  /// What keeps a chunk from holding each of these workers' contributions exactly once, or nothing.
  std::string problem_of_sum(int rank, int chunk, int first_worker, int last_worker) const;

 private:
  std::size_t index(int rank, int chunk) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks_) + static_cast<std::size_t>(chunk);
  }
  std::uint64_t* bits(int rank, int chunk) { return bits_.data() + index(rank, chunk) * 2 * words_; }
  const std::uint64_t* bits(int rank, int chunk) const { return bits_.data() + index(rank, chunk) * 2 * words_; }

  int chunks_;
  int nodes_;
  std::size_t words_;  // for one bit of each rank
  std::vector<std::uint64_t> bits_;
  std::vector<State> states_;
};

/// What the schedule's result lacks, or nothing.
std::string problem_of_result(const Schedule& schedule, const Symbols& symbols);

}  // namespace param_sync::schedule
