#pragma once
/// @file The socket calls of GPUnet (OSDI'14, ut-osa/gpunet) on gpusock: a kernel written for GPUnet compiles with its
/// include of gpunet.cu.h changed to this file, or unchanged with -I on gpusock/compat/gpunet. docs/from_gpunet.md has
/// call by call what is the same and what differs.
///
/// The host calls gpunet_init(context) before it launches. As there, calls are made by all threads of a block, those
/// named single_thread_* by one thread; the calls below that GPUnet had for blocks only also exist as single_thread_*,
/// for use inside BEGIN_SINGLE_THREAD_PART. Results are handles or counts, or negated errno values; nothing hangs once
/// the context ends.

#include "gpusock/compat/gpunet_kernel.cuh"
#include "gpusock/compat/gpunet_memory.cuh"
#include "gpusock/compat/gpunet_poll.cuh"
#include "gpusock/compat/gpunet_state.cuh"

#include <netinet/in.h>
#include <sys/socket.h>

#include <type_traits>

namespace gpusock::compat {

inline constexpr int kBacklog = 128;  // GPUnet's calls name none

/// The endpoint of a socket address; family 0 where it is not IPv4.
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

/// True if the socket may wait; asked once for the group, as it may be changed meanwhile.
template <class Group>
__device__ bool blocks(const Group& group, int socket) {
  return detail::by_leader(group, [&]() -> std::int64_t { return !has_note(socket, kNoteNonBlocking); }) != 0;
}

/// Sends what there is room for, and waits only where there is none.
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

/// The end of the stream is 0 the first time and -EPIPE then: loops that wait for a size and know only errors end, too.
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

/// Listens at an IPv4 address; port 0 picks one (gpunet_net().getsockname tells).
__device__ inline int single_thread_gbind_in(const sockaddr_in* address) {
  return gpusock::compat::bind_in(gpusock::this_thread(), address);
}
/// single_thread_gbind_in for a block.
__device__ inline int gbind_in(const sockaddr_in* address) {
  return gpusock::compat::bind_in(gpusock::this_block(), address);
}
/// GPUnet's choice of a way through host memory; here the link decides.
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
/// The same: here the link decides.
__device__ inline int gconnect_ib(const sockaddr_in* address) { return gconnect_in(address); }
/// The same: here the link decides.
__device__ inline int gconnect_bounce_in(const sockaddr_in* address) { return gconnect_in(address); }

/// gaccept for one thread.
__device__ inline int single_thread_gaccept(int listener) {
  return gpusock::compat::accept(gpusock::this_thread(), listener, gpusock::Deadline::never());
}

namespace gpusock::compat {

/// `Scope`: the type of the name gpunet_scope where gaccept stands.
template <class Scope>
__device__ int accept_in(int listener) {
  if constexpr (std::is_same_v<Scope, const SingleThreadPart>) {
    return single_thread_gaccept(listener);
  } else {
    return accept(this_block(), listener, Deadline::never());
  }
}

}  // namespace gpusock::compat

/// Block: waits for a connection. Within BEGIN_SINGLE_THREAD_PART, where GPUnet's own programs call it too, that thread
/// alone waits: it must stand there itself, not in a function that is called there.
#define gaccept(listener) gpusock::compat::accept_in<decltype(gpunet_scope)>(listener)

/// Takes a connection that is there, else -EWOULDBLOCK.
__device__ inline int gaccept_nb(int listener) {
  return gpusock::compat::accept(gpusock::this_block(), listener, gpusock::Deadline::now());
}
/// gaccept_nb for one thread.
__device__ inline int single_thread_gaccept_nb(int listener) {
  return gpusock::compat::accept(gpusock::this_thread(), listener, gpusock::Deadline::now());
}

/// Sends up to `size` bytes and returns how many: at least one, or an error; -EWOULDBLOCK where the socket is not to
/// block.
__device__ inline int gsend(int socket, const uchar* data, int size) {
  return gpusock::compat::send(gpusock::this_block(), socket, data, size);
}
/// gsend for one thread.
__device__ inline int single_thread_gsend(int socket, const uchar* data, int size) {
  return gpusock::compat::send(gpusock::this_thread(), socket, data, size);
}

/// Receives up to `size` bytes and returns how many; 0 at the end of the stream, and -EPIPE from then on; -EWOULDBLOCK
/// where the socket is not to block and nothing is there.
__device__ inline int grecv(int socket, uchar* data, int size) {
  const auto block = gpusock::this_block();
  return gpusock::compat::receive(block, socket, data, size, gpusock::compat::blocks(block, socket));
}
/// grecv for one thread.
__device__ inline int single_thread_grecv(int socket, uchar* data, int size) {
  const auto thread = gpusock::this_thread();
  return gpusock::compat::receive(thread, socket, data, size, gpusock::compat::blocks(thread, socket));
}

/// As grecv on a socket that is not to block.
__device__ inline int grecv_nb(int socket, void* data, int size) {
  return gpusock::compat::receive(gpusock::this_block(), socket, data, size, false);
}

/// Ends one direction (SHUT_RD, SHUT_WR) or both.
__device__ inline int single_thread_gshutdown(int socket, int how = SHUT_RDWR) {
  if (how < SHUT_RD || how > SHUT_RDWR) return -EINVAL;
  return gpunet_net().shutdown(gpusock::this_thread(), socket, static_cast<gpusock::Shutdown>(how + 1));
}
static_assert(SHUT_RD == 0 && SHUT_WR == 1 && SHUT_RDWR == 2);

/// Closes; what was sent still arrives.
__device__ inline int single_thread_gclose(int socket) { return gpunet_net().close(gpusock::this_thread(), socket); }
/// single_thread_gclose for a block.
__device__ inline int gclose(int socket) { return gpunet_net().close(gpusock::this_block(), socket); }

/// Block: may gsend and grecv on this socket wait.
__device__ inline void gsetsock_block(int socket, int blocking) {
  BEGIN_SINGLE_THREAD_PART { gpusock::compat::set_note(socket, gpusock::compat::kNoteNonBlocking, blocking == 0); }
  END_SINGLE_THREAD_PART;
}

/// Block: not 0 if they may.
__device__ inline int ggetsock_block(int socket) { return gpusock::compat::blocks(gpusock::this_block(), socket); }
