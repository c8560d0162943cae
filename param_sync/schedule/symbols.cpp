#include "param_sync/schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::schedule {
namespace {

/// Returns the worker whose part of the data contains this chunk.
int part_owner(const Schedule& schedule, int chunk) {
  int owner = static_cast<int>(std::int64_t{chunk} * schedule.workers / schedule.chunks);  // at most one too low
  while (chunk >= part_of({0, schedule.chunks}, owner, schedule.workers).end) ++owner;
  return owner;
}

/// True if the rank has data for this chunk before the schedule runs.
bool begins_with(const Schedule& schedule, int rank, int chunk) {
  if (rank >= schedule.workers) return false;
  if (schedule.result == Result::broadcast) return rank == schedule.root;
  if (is_of_parts(schedule.result)) return rank == part_owner(schedule, chunk);
  return true;
}

std::string problem_of_chunk(const Schedule& schedule, const Symbols& symbols, int rank, int chunk) {
  const int owner = part_owner(schedule, chunk);
  if (schedule.result == Result::reduce_scatter && rank != owner) return "";
  if (schedule.result == Result::gather && rank != schedule.root) return "";
  const Symbols::State state = symbols.state(rank, chunk);
  if (state == Symbols::State::undefined) return "ends without any data";
  if (state == Symbols::State::applied && schedule.result != Result::parameter_server) {
    return "ends with weights, not with a sum";
  }
  if (state == Symbols::State::sum && schedule.result == Result::parameter_server) {
    return "ends without the optimizer applied";
  }
  if (schedule.result == Result::broadcast) return symbols.problem_of_sum(rank, chunk, schedule.root, schedule.root);
  if (is_of_parts(schedule.result)) return symbols.problem_of_sum(rank, chunk, owner, owner);
  return symbols.problem_of_sum(rank, chunk, 0, schedule.workers - 1);
}

}  // namespace

Symbols::Symbols(const Schedule& schedule)
    : chunks_(schedule.chunks), nodes_(schedule.nodes()), words_((static_cast<std::size_t>(nodes_) + 63) / 64) {
  const std::size_t values = static_cast<std::size_t>(nodes_) * static_cast<std::size_t>(chunks_);
  bits_.resize(values * 2 * words_);
  states_.resize(values, State::undefined);
  for (int rank = 0; rank < schedule.workers; ++rank) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      if (!begins_with(schedule, rank, chunk)) continue;
      bits(rank, chunk)[rank / 64] |= std::uint64_t{1} << (rank % 64);
      states_[index(rank, chunk)] = State::sum;
    }
  }
}

Symbols::Value Symbols::get(int rank, int chunk) const {
  const std::uint64_t* const all = bits(rank, chunk);
  return {state(rank, chunk), {all, all + words_}, {all + words_, all + 2 * words_}};
}

void Symbols::set(int rank, int chunk, const Value& value) {
  std::copy(value.present.begin(), value.present.end(), bits(rank, chunk));
  std::copy(value.repeated.begin(), value.repeated.end(), bits(rank, chunk) + words_);
  states_[index(rank, chunk)] = value.state;
}

void Symbols::add(int rank, int chunk, const Value& value) {
  std::uint64_t* const present = bits(rank, chunk);
  std::uint64_t* const repeated = present + words_;
  for (std::size_t word = 0; word < words_; ++word) {
    repeated[word] |= value.repeated[word] | (present[word] & value.present[word]);
    present[word] |= value.present[word];
  }
}

std::string Symbols::problem_of_sum(int rank, int chunk, int first_worker, int last_worker) const {
  const std::uint64_t* const present = bits(rank, chunk);
  const std::uint64_t* const repeated = present + words_;
  const auto is_right = [&](std::size_t word) {
    const int begin = std::clamp(first_worker - static_cast<int>(word) * 64, 0, 64),
              end = std::clamp(last_worker + 1 - static_cast<int>(word) * 64, 0, 64);
    const std::uint64_t below_end = end == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << end) - 1;
    const std::uint64_t wanted = begin >= end ? 0 : below_end >> begin << begin;
    return present[word] == wanted && repeated[word] == 0;
  };
  std::size_t right = 0;
  while (right < words_ && is_right(right)) ++right;
  for (int other = static_cast<int>(right) * 64; other < nodes_; ++other) {
    const bool has = (present[other / 64] >> (other % 64) & 1) != 0;
    const bool wanted = other >= first_worker && other <= last_worker;
    if (has && !wanted) return fmt::format("holds rank {}'s contribution, which is not wanted", other);
    if (!has && wanted) return fmt::format("lacks rank {}'s contribution", other);
    if ((repeated[other / 64] >> (other % 64) & 1) != 0) {
      return fmt::format("holds rank {}'s contribution more than once", other);
    }
  }
  return "";
}

std::string problem_of_result(const Schedule& schedule, const Symbols& symbols) {
  for (int rank = 0; rank < schedule.workers; ++rank) {
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      const std::string problem = problem_of_chunk(schedule, symbols, rank, chunk);
      if (!problem.empty())
        return fmt::format("{}: chunk {} at rank {} {}", to_string(schedule.result), chunk, rank, problem);
    }
  }
  return "";
}

}  // namespace param_sync::schedule
