#include "context_side.hpp"

#include "bounds.hpp"
#include "program/socket_failure.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace bench {
namespace {

/// Sockets besides the measured ones: the listener, other programs' connections, connections that are still ending.
constexpr std::uint32_t kMoreSockets = 14;

}  // namespace

gpusock::Options context_options(const BenchOptions& options, bool answers) {
  auto chosen = gpusock::Options::from_env();
  if (answers && options.answer_gpu >= 0) chosen.gpu = options.answer_gpu;
  chosen.ring_bytes = options.ring_bytes;
  if (options.question == Question::connections) return chosen;  // many connections end while others begin
  chosen.sockets_max = std::min(options.sockets_in_all() + kMoreSockets, kCrowdMax);
  chosen.connections_max = options.sockets_in_all() + 3;
  return chosen;
}

void require_descriptors(std::uint64_t connections) {
  constexpr rlim_t kPerConnection = 4;  // both ends, of gpusock and of its rival
  constexpr rlim_t kMore = 128;         // files, listeners, epolls
  const rlim_t wanted = kPerConnection * connections + kMore;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < wanted) {
    throw gpusock::Error(EMFILE, "--sockets " + std::to_string(connections) + " takes " + std::to_string(wanted) +
                                     " open files, and this process may have " + std::to_string(limit.rlim_max) +
                                     ": raise the hard limit (as root: ulimit -Hn " + std::to_string(wanted) +
                                     "), or take fewer sockets");
  }
  limit.rlim_cur = wanted;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) throw gpusock::Error(errno, "raising the limit of open files");
}

gpusock::Endpoint listen_at(const BenchOptions& options) {
  auto at = gpusock::Endpoint::parse(options.host + ":0");
  at.link = options.link;
  return at;
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
