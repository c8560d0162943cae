#pragma once
/// @file The results: a table for people, and JSON for programs.

#include "contest.hpp"
#include "machine.hpp"

namespace bench {

/// The table, with a head that says what was measured on which device.
std::string make_table(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result);

/// The JSON: machine facts, options, the medians, and every round. docs/benchmarks.md describes it.
std::string make_json(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result);

}  // namespace bench
