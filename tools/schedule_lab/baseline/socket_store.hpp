#pragma once
/// @file A parameter server on raw TCP sockets, after the published design of ps-lite: the rival of stores in
/// `param_sync bench --owners`.

#include <chrono>
#include <cstddef>
#include <future>
#include <vector>

namespace param_sync::baseline {

/// What workers do at the same time: a worker pushes a range and pulls it again, then it takes the next range. Each
/// range has an owner of its own.
struct StoreLoad {
  int workers = 4;
  int owners = 1;
  std::size_t floats = 0;  ///< of a range
  int pairs = 1;           ///< pushes of each worker, and as many pulls

  /// The range of a worker's pair. Workers begin with different ranges.
  constexpr int range_of(int worker, int pair) const { return (worker + pair) % owners; }
  /// Pairs that come before the timed ones: each worker uses each range.
  constexpr int warm_up() const { return owners + pairs / 10; }
  /// Pushes of all workers, with those of the warm-up. Each adds 1 to all weights of its range.
  constexpr long pushes() const { return long{workers} * (warm_up() + pairs); }
};

/// Calls this for all workers at the same time, each in a thread of its own. Returns the seconds until all have ended.
template <class Call>
double time_all(int workers, Call call) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::future<void>> calls;
  for (int rank = 0; rank < workers; ++rank) calls.push_back(std::async(std::launch::async, [=] { call(rank); }));
  for (std::future<void>& one : calls) one.wait();
  for (std::future<void>& one : calls) one.get();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the seconds that all pairs take on raw sockets, with a thread for each worker and for each owner. Throws
/// std::system_error if a socket fails, and std::runtime_error if the owners' sums are wrong.
double time_socket_store(const StoreLoad& load);

}  // namespace param_sync::baseline
