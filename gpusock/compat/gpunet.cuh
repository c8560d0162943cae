#pragma once
/// @file The socket calls of GPUnet (OSDI'14, ut-osa/gpunet) on gpusock: a kernel written for GPUnet compiles with its
/// include of gpunet.cu.h changed to this file, or unchanged with -I on gpusock/compat/gpunet. docs/from_gpunet.md
/// lists for each call what is the same and what differs.
///
/// The host calls gpunet_init(context) before it launches kernels. As in GPUnet, all threads of a block make a call
/// together, and one thread makes the calls named single_thread_*. Some calls that GPUnet had for blocks only also
/// exist as single_thread_*, for use inside BEGIN_SINGLE_THREAD_PART. Calls return handles, counts or negated errno
/// values. No call hangs once the context ends.

#include "gpusock/compat/gpunet_kernel.cuh"
#include "gpusock/compat/gpunet_memory.cuh"
#include "gpusock/compat/gpunet_poll.cuh"
#include "gpusock/compat/gpunet_state.cuh"

#include <netinet/in.h>
#include <sys/socket.h>

#include <type_traits>

namespace gpusock::compat {

inline constexpr int kBacklog = 128;  // GPUnet's calls have no parameter for it

/// Returns the endpoint of a socket address; its family is 0 if the address is not IPv4.
__device__ inline Endpoint endpoint_of(const sockaddr_in* address) {
  Endpoint endpoint;
  if (address == nullptr || address->sin_family != AF_INET) return endpoint;
  const auto* port = reinterpret_cast<const unsigned char*>(&address->sin_port);
  const auto* host = reinterpret_cast<const unsigned char*>(&address->sin_addr);
  for (int i = 0; i < 4; ++i) endpoint.address[i] = host[i];
  endpoint.port = static_cast<std::uint16_t>(port[0] << 8 | port[1]);
  endpoint.family = 4;
  endpoint.link = gpunet().link;
  return endpoint;
}

template <class Group>
__device__ int bind_in(const Group& group, const sockaddr_in* address) {
  if (!gpunet().ready) return -ENODEV;
  const Endpoint at = endpoint_of(address);
  return at.family == 0 ? -EAFNOSUPPORT
                        : without_notes(group, gpunet_net().listen(group, at, kBacklog, Deadline::never()));
}

template <class Group>
__device__ int connect_in(const Group& group, const sockaddr_in* address) {
  if (!gpunet().ready) return -ENODEV;
  const Endpoint to = endpoint_of(address);
  return to.family == 0 ? -EAFNOSUPPORT : without_notes(group, gpunet_net().connect(group, to, Deadline::never()));
}

template <class Group>
__device__ int accept(const Group& group, int listener, Deadline deadline) {
  return without_notes(group, gpunet_net().accept(group, listener, deadline));
}

/// True if calls on the socket may wait. The leader looks for the whole group, as the answer may change meanwhile.
template <class Group>
__device__ bool blocks(const Group& group, int socket) {
  return detail::by_leader(group, [&]() -> std::int64_t { return !has_note(socket, kNoteNonBlocking); }) != 0;
}

/// Sends what there is room for, and waits only if there is no room.
template <class Group>
__device__ int send(const Group& group, int socket, const uchar* data, int size) {
  if (data == nullptr || size < 0) return -EINVAL;
  const Net& net = gpunet_net();
  const auto sent = net.send(group, socket, data, size, kDontWait);
  if (sent != -EAGAIN || !blocks(group, socket)) return static_cast<int>(sent);
  const auto first = net.send(group, socket, data, 1, size > 1 ? kMore : 0, Deadline::never());
  if (first <= 0 || size == 1) return static_cast<int>(first);
  const auto rest = net.send(group, socket, data + 1, size - 1, kDontWait);
  return static_cast<int>(rest > 0 ? 1 + rest : 1);
}

/// Returns 0 at the end of the stream, and -EPIPE from then on. So loops end that wait for a size and check only for
/// errors.
template <class Group>
__device__ int receive(const Group& group, int socket, void* data, int size, bool waits) {
  if (data == nullptr || size <= 0) return -EINVAL;
  const auto got = gpunet_net().recv(group, socket, data, size, waits ? 0 : kDontWait, Deadline::never());
  if (got != 0) return static_cast<int>(got);
  return static_cast<int>(detail::by_leader(group, [&]() -> std::int64_t {
    if (has_note(socket, kNoteEndSeen)) return -EPIPE;
    set_note(socket, kNoteEndSeen, true);
    return 0;
  }));
}

}  // namespace gpusock::compat

/// Listens at an IPv4 address. For port 0 the system picks a port, which gpunet_net().getsockname returns.
__device__ inline int single_thread_gbind_in(const sockaddr_in* address) {
  return gpusock::compat::bind_in(gpusock::this_thread(), address);
}
/// single_thread_gbind_in for a block.
__device__ inline int gbind_in(const sockaddr_in* address) {
  return gpusock::compat::bind_in(gpusock::this_block(), address);
}
/// As single_thread_gbind_in. In GPUnet it chooses a way through host memory; here the link decides.
__device__ inline int single_thread_gbind_bounce_in(const sockaddr_in* address) {
  return single_thread_gbind_in(address);
}

/// Connects to an IPv4 address.
__device__ inline int gconnect_in(const sockaddr_in* address) {
  return gpusock::compat::connect_in(gpusock::this_block(), address);
}
/// gconnect_in for one thread.
__device__ inline int single_thread_gconnect_in(const sockaddr_in* address) {
  return gpusock::compat::connect_in(gpusock::this_thread(), address);
}
/// As gconnect_in: here the link decides how bytes travel.
__device__ inline int gconnect_ib(const sockaddr_in* address) { return gconnect_in(address); }
/// As gconnect_in: here the link decides how bytes travel.
__device__ inline int gconnect_bounce_in(const sockaddr_in* address) { return gconnect_in(address); }

/// gaccept for one thread.
__device__ inline int single_thread_gaccept(int listener) {
  return gpusock::compat::accept(gpusock::this_thread(), listener, gpusock::Deadline::never());
}

namespace gpusock::compat {

/// Accepts for the block, or for one thread. `Scope`: the type of the name gpunet_scope at the gaccept call.
template <class Scope>
__device__ int accept_in(int listener) {
  if constexpr (std::is_same_v<Scope, const SingleThreadPart>) {
    return single_thread_gaccept(listener);
  } else {
    return accept(this_block(), listener, Deadline::never());
  }
}

}  // namespace gpusock::compat

/// Block: waits for a connection. In BEGIN_SINGLE_THREAD_PART, where GPUnet's own programs call it too, that thread
/// alone waits. For this, the call must be written in the part itself, not in a function that the part calls.
#define gaccept(listener) gpusock::compat::accept_in<decltype(gpunet_scope)>(listener)

/// Accepts a connection that is there. Returns -EWOULDBLOCK if there is none.
__device__ inline int gaccept_nb(int listener) {
  return gpusock::compat::accept(gpusock::this_block(), listener, gpusock::Deadline::now());
}
/// gaccept_nb for one thread.
__device__ inline int single_thread_gaccept_nb(int listener) {
  return gpusock::compat::accept(gpusock::this_thread(), listener, gpusock::Deadline::now());
}

/// Sends up to `size` bytes. Returns how many (at least one) or an error: -EWOULDBLOCK if the socket does not block and
/// there is no room.
__device__ inline int gsend(int socket, const uchar* data, int size) {
  return gpusock::compat::send(gpusock::this_block(), socket, data, size);
}
/// gsend for one thread.
__device__ inline int single_thread_gsend(int socket, const uchar* data, int size) {
  return gpusock::compat::send(gpusock::this_thread(), socket, data, size);
}

/// Receives up to `size` bytes. Returns how many; 0 at the end of the stream, and -EPIPE from then on; -EWOULDBLOCK if
/// the socket does not block and nothing is there.
__device__ inline int grecv(int socket, uchar* data, int size) {
  const auto block = gpusock::this_block();
  return gpusock::compat::receive(block, socket, data, size, gpusock::compat::blocks(block, socket));
}
/// grecv for one thread.
__device__ inline int single_thread_grecv(int socket, uchar* data, int size) {
  const auto thread = gpusock::this_thread();
  return gpusock::compat::receive(thread, socket, data, size, gpusock::compat::blocks(thread, socket));
}

/// As grecv on a socket that does not block.
__device__ inline int grecv_nb(int socket, void* data, int size) {
  return gpusock::compat::receive(gpusock::this_block(), socket, data, size, false);
}

/// Ends one direction (SHUT_RD, SHUT_WR) or both.
__device__ inline int single_thread_gshutdown(int socket, int how = SHUT_RDWR) {
  if (how < SHUT_RD || how > SHUT_RDWR) return -EINVAL;
  return gpunet_net().shutdown(gpusock::this_thread(), socket, static_cast<gpusock::Shutdown>(how + 1));
}
static_assert(SHUT_RD == 0 && SHUT_WR == 1 && SHUT_RDWR == 2);

/// Closes the socket; what was sent is still delivered.
__device__ inline int single_thread_gclose(int socket) { return gpunet_net().close(gpusock::this_thread(), socket); }
/// single_thread_gclose for a block.
__device__ inline int gclose(int socket) { return gpunet_net().close(gpusock::this_block(), socket); }

/// Block: `blocking` says whether gsend and grecv on this socket may wait; 0: they may not.
__device__ inline void gsetsock_block(int socket, int blocking) {
  BEGIN_SINGLE_THREAD_PART { gpusock::compat::set_note(socket, gpusock::compat::kNoteNonBlocking, blocking == 0); }
  END_SINGLE_THREAD_PART;
}

/// Block: not 0 if gsend and grecv on this socket may wait.
__device__ inline int ggetsock_block(int socket) { return gpusock::compat::blocks(gpusock::this_block(), socket); }
