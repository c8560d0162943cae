#pragma once
/// @file Ranks that are threads of one process.

#include "program/arguments.hpp"

#include <gpusock/gpusock.hpp>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace examples {

/// Makes all ranks, and then calls run() of each one, with the addresses of all, on a thread of its own. If one throws
/// gpusock::Error, the program `name` says so and ends: other ranks may wait for this one.
template <class Rank, class Options>
std::vector<std::unique_ptr<Rank>> run_ranks(const std::string& name, const Options& options) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<gpusock::Endpoint> addresses;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(options, rank));
    addresses.push_back(ranks.back()->address);
  }
  std::vector<std::jthread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&] {
      try {
        rank->run(addresses);
      } catch (const gpusock::Error& error) {
        std::cerr << name << ": " << error.what() << '\n';
        std::_Exit(gpusock::program::kFailure);
      }
    });
  }
  threads.clear();  // waits for all
  return ranks;
}

}  // namespace examples
