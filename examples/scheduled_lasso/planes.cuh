#pragma once
/// @file The two connections of a rank with the scheduler: sets of coordinates go over the control plane, sums and
/// changes over the data plane. How ranks come, and how messages are moved whole.

#include "examples/scheduled_lasso/problem.hpp"

#include <gpusock/device.cuh>
#include <gpusock/greetings.cuh>

namespace lasso {

/// The sockets of a connection to a rank, or to the scheduler.
struct Planes {
  gpusock::Socket control, data;
};

/// The first message of each connection.
struct Hello {
  static constexpr std::uint32_t kMagic = 0x4c41'5331;
  static constexpr std::uint32_t kNew = ~0u;
  std::uint32_t magic;
  std::uint32_t rank;  ///< whose data plane this is; kNew: the control plane of a rank that has no number yet
};

/// The scheduler's first message on a control plane.
struct Welcome {
  std::uint32_t rank, ranks;
  Shape shape;  ///< so that all ranks have parts of the same samples
};

/// Sends a whole message. Returns 0 or a negated errno.
template <class Group>
GPUSOCK_FN int send_all(const Group& group, const gpusock::Net& net, gpusock::Socket to, const void* data,
                        std::size_t bytes, gpusock::Deadline until) {
  const std::int64_t sent = net.send(group, to, data, bytes, gpusock::kWaitAll, until);
  return sent < 0 ? static_cast<int>(sent) : 0;
}

/// Receives a whole message. Returns 0 or a negated errno: -EPIPE if the peer has ended the connection.
template <class Group>
GPUSOCK_FN int receive_all(const Group& group, const gpusock::Net& net, gpusock::Socket from, void* data,
                           std::size_t bytes, gpusock::Deadline until) {
  const std::int64_t got = net.recv(group, from, data, bytes, gpusock::kWaitAll, until);
  if (got < 0) return static_cast<int>(got);
  return got == static_cast<std::int64_t>(bytes) ? 0 : -EPIPE;
}

/// What a kernel reports: 0, or why it has ended, and which rank is the reason.
struct Failure {
  static constexpr std::int32_t kScheduler = -1;
  int error;
  std::int32_t rank;
};

/// One thread of the scheduler accepts both connections of all ranks, and numbers the ranks.
__global__ void meet(gpusock::Net net, gpusock::Socket listener, Welcome welcome, Planes* planes,
                     std::uint64_t timeout_ns, Failure* failure) {
  const auto me = gpusock::this_thread();
  const auto until = gpusock::Deadline::after_ns(timeout_ns);
  gpusock::Greetings<Hello> greetings(net, listener, timeout_ns);
  const std::uint32_t ranks = welcome.ranks;
  for (std::uint32_t i = 0; i < ranks; ++i) planes[i] = {-1, -1};
  welcome.rank = 0;
  for (std::uint32_t complete = 0; complete < ranks;) {
    Hello hello;
    const gpusock::Socket caller = greetings.next(hello, until);
    if (caller < 0) {
      std::uint32_t missing = 0;
      while (planes[missing].data >= 0) ++missing;
      *failure = {static_cast<int>(caller), static_cast<std::int32_t>(missing)};
      return;
    }
    const bool is_ours = hello.magic == Hello::kMagic;
    if (is_ours && hello.rank == Hello::kNew && welcome.rank < ranks) {
      planes[welcome.rank].control = caller;
      send_all(me, net, caller, &welcome, sizeof welcome, until);  // a rank that has gone is found missing
      ++welcome.rank;
    } else if (is_ours && hello.rank < welcome.rank && planes[hello.rank].data < 0) {
      planes[hello.rank].data = caller;
      ++complete;
    } else {
      net.close(me, caller);
    }
  }
  net.close(me, listener);  // one rank more is refused
}

/// One thread of a rank opens both connections.
__global__ void join(gpusock::Net net, gpusock::Endpoint scheduler, Welcome* welcome, Planes* planes,
                     std::uint64_t timeout_ns, Failure* failure) {
  const auto me = gpusock::this_thread();
  const auto until = gpusock::Deadline::after_ns(timeout_ns);
  Hello hello{Hello::kMagic, Hello::kNew};
  const auto open = [&](gpusock::Socket& socket) {
    socket = net.connect(me, scheduler, until);
    return socket < 0 ? static_cast<int>(socket) : send_all(me, net, socket, &hello, sizeof hello, until);
  };
  int error = open(planes->control);
  if (error == 0) error = receive_all(me, net, planes->control, welcome, sizeof *welcome, until);
  hello.rank = welcome->rank;
  if (error == 0) error = open(planes->data);
  *failure = {error, Failure::kScheduler};
}

}  // namespace lasso
