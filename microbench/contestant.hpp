#pragma once
/// @file The interface through which gpusock and its rivals are measured, and the interfaces of a contestant's two
/// halves, which may be in two processes.

#include "round.hpp"

#include <gpusock/gpusock.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// The messages that moved in one direction.
struct Flow {
  std::uint64_t messages = 0;
  std::uint64_t elapsed_ns = 0;  ///< from the first socket's start to the last one's end
};

/// What one round measured.
struct Round {
  std::vector<std::uint64_t> samples_ns;  ///< latency: one round trip each; connections: one connection each
  Flow out;                               ///< what the asking side sent; for latency and connections, everything
  Flow in;                                ///< what the asking side received; bandwidth only
  std::uint64_t proxy_steps = 0;          ///< of both contexts' proxies, during the round; 0 for rivals
  std::uint64_t proxy_wakeups = 0;        ///< counted in the same way
};

class Contestant {
 public:
  virtual ~Contestant() = default;

  virtual std::string name() const = 0;         ///< short, for the head of a column
  virtual std::string description() const = 0;  ///< what runs, in one line

  /// Runs one round. Throws std::runtime_error that says what failed on which side; it is gpusock::Error (EBADMSG) if a
  /// message held wrong bytes.
  virtual Round run(const Job& job) = 0;
};

/// The answering side's report at the end of a round.
struct Answer {
  Account account;  ///< of all sockets together
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
};

/// The half that listens and answers: in this process, or in another one (remote.hpp).
class Answerer {
 public:
  virtual ~Answerer() = default;

  /// The endpoint to which the asking side must connect.
  virtual gpusock::Endpoint where() const = 0;
  /// Starts to answer a round. Throws Error.
  virtual void start(const Job& job) = 0;
  /// Waits until it has answered the round. Throws Error.
  virtual Answer finish() = 0;
  /// Ends the round, so that finish() returns soon. No round may follow. Any thread may call it.
  virtual void cancel() noexcept = 0;
  /// The asking side has failed. Ends the round, and returns what went wrong on this side before; empty if nothing did.
  /// Call it instead of finish(). No round may follow.
  virtual std::string reason_of_failure(const Job& job);
};

/// The half that connects, asks and measures.
class Asker {
 public:
  virtual ~Asker() = default;

  virtual std::string name() const = 0;
  virtual std::string description() const = 0;
  /// Allocates the memory of a round. Call it before any kernel runs: allocating may wait for running kernels.
  virtual void prepare(const Job& job) = 0;
  /// Runs the round that was prepared. Throws Error.
  virtual Round ask(const gpusock::Endpoint& where, const Job& job) = 0;
};

/// Makes a contestant of two halves.
std::unique_ptr<Contestant> make_pair(std::unique_ptr<Asker> asker, std::unique_ptr<Answerer> answerer);

/// Throws Error if a side gave up or found wrong bytes. `side` is its name in the text: "the measuring kernel", ….
void require_success(const Account& account, const Job& job, const std::string& side);

/// Combines the accounts of a side's sockets: the first failure (of Step::start only if there is no other), and sums.
Account sum_of(std::span<const Account> accounts);

/// Makes a Round of the measuring side's accounts. `samples_ns` has Job::samples_max entries for each socket.
Round make_round(const Job& job, std::span<const Account> accounts, const std::uint64_t* samples_ns);

}  // namespace bench
