#pragma once
/// @file How kernels of ranks open connections to each other: they listen, connect until the peer is there, take
/// callers, and exchange hellos, which are first messages of a fixed size. One thread makes each call.

#include "gpusock/device.cuh"
#include "gpusock/greetings.cuh"

#include <cerrno>
#include <cstdint>

namespace param_sync {

/// Where a rank listens, in mapped memory.
struct Listening {
  gpusock::Socket socket = -1;  ///< the listener, or a negated errno that says why there is none
  gpusock::Endpoint at;
};

/// Runs as one block of one thread.
[[maybe_unused]] static __global__ void open_listener(gpusock::Net net, gpusock::Endpoint at, int backlog,
                                                      Listening* listening) {
  listening->socket = net.listen(gpusock::this_thread(), at, backlog);
  if (listening->socket >= 0) net.getsockname(listening->socket, listening->at);
}

/// True if an attempt that failed with `error` may succeed later: the peer or the network is not up yet, or the peer
/// has just gone away. A loopback interface that is down stays down. A peer whose memory p2p cannot share is up, and
/// p2p cannot share the memory later either.
__device__ inline bool worth_retrying(std::int64_t error, const gpusock::Endpoint& to) {
  const bool loopback = to.family == 4 && to.address[0] == 127;
  const bool named_p2p = to.link == gpusock::LinkKind::p2p;
  return error == -ECONNREFUSED || error == -ECONNRESET || (error == -EHOSTUNREACH && !named_p2p) ||
         (error == -ENETUNREACH && !loopback);
}

template <class Hello>
__device__ inline std::int64_t send_hello(const gpusock::Net& net, gpusock::Socket socket, const Hello& ours,
                                          gpusock::Deadline deadline) {
  const std::int64_t sent = net.send(gpusock::this_thread(), socket, &ours, sizeof ours, gpusock::kWaitAll, deadline);
  return sent < 0 ? sent : 0;
}

/// Sends this rank's hello and receives the peer's. Returns 0, or a negated errno.
template <class Hello>
__device__ __noinline__ inline std::int64_t exchange_hellos(const gpusock::Net& net, gpusock::Socket socket,
                                                            const Hello& ours, Hello& theirs,
                                                            gpusock::Deadline deadline) {
  const std::int64_t error = send_hello(net, socket, ours, deadline);
  if (error != 0) return error;
  const std::int64_t got = net.recv(gpusock::this_thread(), socket, &theirs, sizeof theirs, gpusock::kWaitAll,
                                    deadline);
  if (got < 0) return got;
  return got == static_cast<std::int64_t>(sizeof theirs) ? 0 : -ECONNRESET;
}

/// The result of connect_with_hello() if `goes_on()` is false: the connection is not needed any more.
inline constexpr gpusock::Socket kNotNeeded = -EINTR;

/// Connects to a rank and exchanges hellos. Tries again until the deadline if an attempt is worth_retrying(). Returns
/// the socket, kNotNeeded once `goes_on()` is false, or a negated errno. At the deadline it returns the error of the
/// last attempt that was answered, since this says more than -ETIMEDOUT.
template <class Hello, class GoesOn>
__device__ inline gpusock::Socket connect_with_hello(const gpusock::Net& net, const gpusock::Endpoint& to,
                                                     const Hello& ours, Hello& theirs, gpusock::Deadline deadline,
                                                     GoesOn goes_on) {
  constexpr unsigned kPauseNs = 1'000'000;
  const auto thread = gpusock::this_thread();
  std::int64_t last_answer = -ETIMEDOUT;
  while (goes_on()) {
    const gpusock::Socket socket = net.connect(thread, to, deadline);
    const std::int64_t error = socket < 0 ? socket : exchange_hellos(net, socket, ours, theirs, deadline);
    if (error == 0) return socket;
    if (socket >= 0) net.close(thread, socket);
    const bool retry = worth_retrying(error, to);
    if (retry) last_answer = error;
    if (!retry || deadline.passed()) {
      return static_cast<gpusock::Socket>(error == -ETIMEDOUT ? last_answer : error);
    }
    __nanosleep(kPauseNs);
  }
  return kNotNeeded;
}

/// Returns the next caller whose hello has come, or a negated errno: -ETIMEDOUT also once `goes_on()` is false.
///
/// `is_connecting()`: true while another block of this rank still connects to peers, by the same deadline. A peer that
/// has not come may itself wait for the rank that the other block cannot reach. So after the deadline this call lets
/// the other block fail first: its failure names the rank that cannot be reached.
template <class Hello, class GoesOn, class IsConnecting>
__device__ inline gpusock::Socket next_caller(gpusock::Greetings<Hello>& greetings, Hello& theirs,
                                              gpusock::Deadline deadline, GoesOn goes_on, IsConnecting is_connecting) {
  constexpr std::uint64_t kLookNs = 5'000'000;
  constexpr unsigned kPauseNs = 100'000;
  gpusock::Socket socket = -1;
  do {
    socket = greetings.next(theirs, gpusock::Deadline::after_ns(kLookNs));
  } while (socket == -ETIMEDOUT && !deadline.passed() && goes_on());
  while (socket == -ETIMEDOUT && is_connecting() && goes_on()) __nanosleep(kPauseNs);
  return socket;
}

}  // namespace param_sync
