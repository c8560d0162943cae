#pragma once
/// @file What is measured: one narrow interface for gpusock and its rivals, and its two halves, which may be in two
/// processes.

#include "round.hpp"

#include <gpusock/gpusock.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// What moved in one direction.
struct Flow {
  std::uint64_t messages = 0;
  std::uint64_t elapsed_ns = 0;  ///< from the first socket's start to the last one's end
};

/// What one round measured.
struct Round {
  std::vector<std::uint64_t> samples_ns;  ///< latency: one round trip each; connections: one connection each
  Flow out;                               ///< what the asking side sent; all of latency and connections
  Flow in;                                ///< what it received; bandwidth only
  std::uint64_t proxy_steps = 0;          ///< of both contexts, during the round; 0 for rivals
  std::uint64_t proxy_wakeups = 0;        ///< counted in the same way
};

class Contestant {
 public:
  virtual ~Contestant() = default;

  virtual std::string name() const = 0;         ///< short, for a column's head
  virtual std::string description() const = 0;  ///< what runs, in a line

  /// Runs one round. Throws gpusock::Error: what failed on which side; EBADMSG where a message held wrong bytes.
  virtual Round run(const Job& job) = 0;
};

/// What an answering side has to say at the end of a round.
struct Answer {
  Account account;  ///< all sockets' together
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
};

/// The half that listens and answers: in this process, or in another one (remote.hpp).
class Answerer {
 public:
  virtual ~Answerer() = default;

  /// Where it listens, as the asking side is to connect to it.
  virtual gpusock::Endpoint where() const = 0;
  /// Starts to answer a round. Throws Error.
  virtual void start(const Job& job) = 0;
  /// Waits until it has answered the round. Throws Error.
  virtual Answer finish() = 0;
  /// Ends the round: finish() returns soon. No round follows. Any thread.
  virtual void cancel() noexcept = 0;
  /// Why the asking side may have failed, if this side knows more; else nothing. Instead of finish().
  virtual std::string reason_of_failure() { return {}; }
};

/// The half that connects, asks and measures.
class Asker {
 public:
  virtual ~Asker() = default;

  virtual std::string name() const = 0;
  virtual std::string description() const = 0;
  /// Makes the memory of a round: before any kernel runs, as making some may wait for running kernels.
  virtual void prepare(const Job& job) = 0;
  /// Runs the round that was prepared. Throws Error.
  virtual Round ask(const gpusock::Endpoint& where, const Job& job) = 0;
};

/// The two halves as a contestant.
std::unique_ptr<Contestant> make_pair(std::unique_ptr<Asker> asker, std::unique_ptr<Answerer> answerer);

/// Throws if a side gave up or found wrong bytes; `side` is "the measuring kernel", ….
void require_success(const Account& account, const Job& job, const std::string& side);

/// The accounts of a side's sockets as one: the first failure, and sums.
Account sum_of(std::span<const Account> accounts);

/// The measuring side's figures. `samples_ns` has Job::samples_max of each socket.
Round make_round(const Job& job, std::span<const Account> accounts, const std::uint64_t* samples_ns);

}  // namespace bench
