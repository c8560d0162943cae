#pragma once
/// @file gpusock as a contestant: two contexts, one that listens and one that connects.

#include "contestant.hpp"
#include "options.hpp"

#include <memory>

namespace bench {

/// Sockets in kernels, one block on each context.
std::unique_ptr<Contestant> make_kernel_pair(const BenchOptions& options);

/// Sockets in host threads, one on each context.
std::unique_ptr<Contestant> make_thread_pair(const BenchOptions& options);

/// Two contexts and what both kinds of pair need of them.
class ContextPair {
 public:
  explicit ContextPair(const BenchOptions& options);

  /// Where the acceptor listens: a port of its own choice.
  const gpusock::Endpoint& listen_at() const { return at_; }

  /// Adds the proxies' work since `before` to the round.
  gpusock::Context::Stats work() const;
  void add_work(Round& round, const gpusock::Context::Stats& before) const;

  gpusock::Context acceptor;
  gpusock::Context connector;

 private:
  gpusock::Endpoint at_;
};

/// Throw where listening or connecting failed, and say what to do.
void require_listener(gpusock::Socket listener, const gpusock::Endpoint& at);
void require_connection(const Account& account, const gpusock::Endpoint& to);

}  // namespace bench
