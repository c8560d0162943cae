#pragma once
/// @file Several schedules in virtual time on the same links, with priorities: what training does.

#include "param_sync/schedule/schedule.hpp"
#include "param_sync/cost/network_model.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync::simulate {

/// A schedule, prepared for running many times. What it takes is a schedule that check() passes.
class Plan {
 public:
  explicit Plan(const schedule::Schedule& schedule);
  ~Plan();
  Plan(Plan&&) noexcept;

  int chunks() const;
  int workers() const;
  std::uint64_t messages() const;  ///< of one run

 private:
  friend class Traffic;
  struct Data;
  std::unique_ptr<const Data> data_;
};

/// A run of a plan.
struct Exchange {
  const Plan* plan = nullptr;
  double chunk_bytes = 0;
  double pushed_bytes = 0;  ///< of a chunk on its way to the owner that applies the optimizer: a gradient's factors may
                            ///< be smaller than weights
  double apply_s = 0;       ///< that the owner works on a chunk, besides adding
  int priority = 0;         ///< of messages that wait for a port, those of the lowest number go first
};

/// What is told about traffic and time. Calls back into Traffic are allowed.
class TrafficListener {
 public:
  virtual ~TrafficListener() = default;
  virtual void exchange_done(std::size_t exchange, int rank) = 0;  ///< the rank has its result
  virtual void timer(int rank) = 0;                                ///< of Traffic::after()
};

/// Ranks with one port each way, which all exchanges share. A message that has begun is not interrupted. The rest is as
/// in simulation.hpp; links are all alike.
class Traffic {
 public:
  Traffic(int ranks, const cost::NetworkModel& model, TrafficListener& listener);
  ~Traffic();

  /// Nothing moves at a rank until it is ready: until its data is there. Exchanges are numbered from 0. The plan
  /// outlives it.
  std::size_t begin(const Exchange& exchange);
  void ready(std::size_t exchange, int rank);

  /// Calls timer(rank) when so much time has passed.
  void after(double seconds, int rank);

  /// Until nothing is left to happen.
  void run();

  double now_s() const;
  double bytes_sent(int rank) const;
  /// Exchanges that some rank has not ended.
  std::size_t unfinished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync::simulate
