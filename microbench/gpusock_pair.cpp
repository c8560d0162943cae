#include "gpusock_pair.hpp"
#include "program/socket_failure.hpp"

namespace bench {
namespace {

gpusock::Options context_options(const BenchOptions& options) {
  auto chosen = gpusock::Options::from_env();
  chosen.ring_bytes = options.ring_bytes;
  chosen.sockets_max = 16;
  chosen.connections_max = 4;
  return chosen;
}

}  // namespace

ContextPair::ContextPair(const BenchOptions& options)
    : acceptor(context_options(options)),
      connector(context_options(options)),
      at_(gpusock::Endpoint::parse(options.host + ":0")) {
  at_.link = options.link;
}

gpusock::Context::Stats ContextPair::work() const {
  auto sum = acceptor.stats();
  const auto other = connector.stats();
  sum.proxy_steps += other.proxy_steps;
  sum.proxy_wakeups += other.proxy_wakeups;
  return sum;
}

void ContextPair::add_work(Round& round, const gpusock::Context::Stats& before) const {
  const auto after = work();
  round.proxy_steps = after.proxy_steps - before.proxy_steps;
  round.proxy_wakeups = after.proxy_wakeups - before.proxy_wakeups;
}

void require_listener(gpusock::Socket listener, const gpusock::Endpoint& at) {
  if (listener >= 0) return;
  throw gpusock::program::SocketFailure("listening at " + at.host_port(), gpusock::program::Attempt::listening,
                                        -listener, at);
}

void require_connection(const Account& account, const gpusock::Endpoint& to) {
  if (account.failed_step != Step::connect) return;
  throw gpusock::program::SocketFailure("connecting to " + to.host_port(), gpusock::program::Attempt::connecting,
                                        static_cast<int>(-account.result), to);
}

}  // namespace bench
