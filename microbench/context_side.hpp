#pragma once
/// @file The context of one half, and what both kinds of caller (kernels and host threads) need of it.

#include "contestant.hpp"
#include "options.hpp"

#include <memory>

namespace bench {

/// Halves with sockets in kernels, one block for each socket.
std::unique_ptr<Answerer> make_kernel_answerer(const BenchOptions& options);
std::unique_ptr<Asker> make_kernel_asker(const BenchOptions& options);

/// Halves with sockets in host threads, one thread for each socket.
std::unique_ptr<Answerer> make_thread_answerer(const BenchOptions& options);
std::unique_ptr<Asker> make_thread_asker(const BenchOptions& options);

/// The options of the context of the half that answers or asks.
gpusock::Options context_options(const BenchOptions& options, bool answers);

/// Raises this process's soft limit of open files, so that both contestants can have so many connections at a time.
/// Throws Error (EMFILE) that says what to do if the hard limit is lower.
void require_descriptors(std::uint64_t connections);

/// Where the answering half listens: at any free port.
gpusock::Endpoint listen_at(const BenchOptions& options);

/// How many connections may wait to be accepted.
inline constexpr int kBacklog = 512;

/// The work of a context's proxy since this object was made.
class ProxyWork {
 public:
  explicit ProxyWork(const gpusock::Context& context) : context_(context), before_(context.stats()) {}

  template <class Result>
  void add_to(Result& result) const {
    const auto now = context_.stats();
    result.proxy_steps += now.proxy_steps - before_.proxy_steps;
    result.proxy_wakeups += now.proxy_wakeups - before_.proxy_wakeups;
  }

 private:
  const gpusock::Context& context_;
  gpusock::Context::Stats before_;
};

/// Throw program::SocketFailure, which says what to do, if listening or connecting failed.
void require_listener(gpusock::Socket listener, const gpusock::Endpoint& at);
void require_connection(const Account& account, const gpusock::Endpoint& to);

}  // namespace bench
