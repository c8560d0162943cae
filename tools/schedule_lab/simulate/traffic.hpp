#pragma once
/// @file Runs several schedules in virtual time on the same links, with priorities, as training does.

#include "param_sync/schedule/schedule.hpp"
#include "param_sync/cost/network_model.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync::simulate {

/// A schedule that is prepared to run many times. check() must accept the schedule.
class Plan {
 public:
  explicit Plan(const schedule::Schedule& schedule);
  ~Plan();
  Plan(Plan&&) noexcept;

  int chunks() const;
  int workers() const;
  std::uint64_t messages() const;  ///< number of messages of one run

 private:
  friend class Traffic;
  struct Data;
  std::unique_ptr<const Data> data_;
};

/// A run of a plan.
struct Exchange {
  const Plan* plan = nullptr;
  double chunk_bytes = 0;
  double pushed_bytes = 0;  ///< bytes of a chunk that is sent to the owner that applies the optimizer: factors of a
                            ///< gradient may be smaller than weights
  double apply_s = 0;       ///< time that the owner works on a chunk, in addition to the additions
  int priority = 0;         ///< of the messages that wait for a port, those with the lowest number go first
};

/// Receives events of a Traffic. Its functions may call the Traffic.
class TrafficListener {
 public:
  virtual ~TrafficListener() = default;
  virtual void exchange_done(std::size_t exchange, int rank) = 0;  ///< called when the rank has its result
  virtual void timer(int rank) = 0;                                ///< called when the time of Traffic::after() is over
};

/// Ranks with one port in each direction, which all exchanges share. A message that has begun is not interrupted. Links
/// are all alike. All else is as in simulation.hpp.
class Traffic {
 public:
  Traffic(int ranks, const cost::NetworkModel& model, TrafficListener& listener);
  ~Traffic();

  /// Begins an exchange and returns its number, from 0 on. A rank neither sends nor receives for it before ready() says
  /// that the rank's data is there. The plan must outlive the exchange.
  std::size_t begin(const Exchange& exchange);
  void ready(std::size_t exchange, int rank);

  /// Calls TrafficListener::timer(rank) when so much virtual time has passed.
  void after(double seconds, int rank);

  /// Runs until no event is left.
  void run();

  double now_s() const;
  double bytes_sent(int rank) const;
  /// Number of exchanges that some rank has not ended.
  std::size_t unfinished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync::simulate
