#pragma once
/// @file What is measured: one narrow interface for gpusock and its rivals.

#include "round.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// What one round measured.
struct Round {
  std::vector<std::uint64_t> samples_ns;  ///< latency: one round trip each
  std::uint64_t messages = 0;
  std::uint64_t elapsed_ns = 0;
  std::uint64_t proxy_steps = 0;    ///< of both contexts, during the round; 0 for rivals
  std::uint64_t proxy_wakeups = 0;  ///< likewise
};

class Contestant {
 public:
  virtual ~Contestant() = default;

  virtual std::string name() const = 0;         ///< short, for a column's head
  virtual std::string description() const = 0;  ///< what runs, in a line

  /// Runs one round. Throws gpusock::Error: what failed on which side; EBADMSG where a message held wrong bytes.
  virtual Round run(const Job& job) = 0;
};

/// Throws where a side gave up or found wrong bytes; `side` is "sender", ….
void require_success(const Account& account, const Job& job, const std::string& side);

/// The measuring side's figures.
Round make_round(const Job& job, const Account& account, const std::uint64_t* samples_ns);

}  // namespace bench
