#pragma once
/// @file What the examples of stores share: their ranks are threads of one process.

#include "examples/device_memory.hpp"

#include "program/arguments.hpp"
#include "program/run.hpp"

#include "param_sync/store.hpp"

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

/// Adds --clock. `read`: what ranks read, for the texts.
inline void take_clock(gpusock::program::Arguments& arguments, std::string& clock, const std::string& read) {
  arguments.text("--clock", clock, "Which " + read + " a rank may read: bsp, ssp:S or async")
      .check([read](const std::string& text) {
        try {
          param_sync::clock_of(text);
          return std::string();
        } catch (const gpusock::Error&) {
          return "'" + text + "' is none of bsp, ssp:S (" + read + " miss at most S pushes of each rank) and async";
        }
      });
}

}  // namespace examples
