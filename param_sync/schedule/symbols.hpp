#pragma once
/// @file The symbolic contents of chunks, for the checker: which ranks' contributions they hold, and how often.

#include "param_sync/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace param_sync::schedule {

/// The values of all chunks at all ranks. A value has two bits for each rank: the rank's contribution is present; it is
/// present more than once. Two bits are exact for sums, since no op takes a contribution out again.
class Symbols {
 public:
  enum class State : std::uint8_t { undefined, sum, applied };

  struct Value {
    State state = State::undefined;
    std::vector<std::uint64_t> present;
    std::vector<std::uint64_t> repeated;
  };

  /// Makes the values before the schedule runs. price_of_check() includes their memory.
  explicit Symbols(const Schedule& schedule);

  Value get(int rank, int chunk) const;
  void set(int rank, int chunk, const Value& value);
  State state(int rank, int chunk) const { return states_[index(rank, chunk)]; }

  /// Adds `value` to a chunk.
  void add(int rank, int chunk, const Value& value);
  void apply(int rank, int chunk) { states_[index(rank, chunk)] = State::applied; }

  /// Says how a chunk differs from holding exactly these workers' contributions, each once. Empty if it does not.
  std::string problem_of_sum(int rank, int chunk, int first_worker, int last_worker) const;

 private:
  std::size_t index(int rank, int chunk) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks_) + static_cast<std::size_t>(chunk);
  }
  std::uint64_t* bits(int rank, int chunk) { return bits_.data() + index(rank, chunk) * 2 * words_; }
  const std::uint64_t* bits(int rank, int chunk) const { return bits_.data() + index(rank, chunk) * 2 * words_; }

  int chunks_;
  int nodes_;
  std::size_t words_;  // words that hold one bit for each rank
  std::vector<std::uint64_t> bits_;
  std::vector<State> states_;
};

/// Names a chunk of a worker that differs from the schedule's result. Empty if no chunk differs.
std::string problem_of_result(const Schedule& schedule, const Symbols& symbols);

}  // namespace param_sync::schedule
