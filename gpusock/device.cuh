#pragma once
/// @file The socket calls of kernels and host threads.
///
/// A Net is to a kernel what the operating system is to a program: its member functions are the socket calls. Every
/// call is collective over a group (groups.cuh): all its threads call with the same arguments and get the same result.
/// One group may send and one may receive on a socket at the same time; they may be in different kernels. Whoever
/// passes a socket from one group to another orders the two (a barrier, a kernel boundary, a flag with release and
/// acquire).
///
/// No call hangs: each returns by its deadline, and -ECANCELED at once when the context ends. Errors are negated errno
/// values; the common ones are
///   -EBADF       not an open socket of this side (never opened, or closed)
///   -ECANCELED   the context ends
///   -ETIMEDOUT   the deadline passed
///   -EAGAIN      it would have to wait, and kDontWait or Deadline::now() said not to
///   -ECONNRESET  the peer, or the way to it, is gone without an orderly end
///   -EPIPE       sending where this side or the peer has ended this direction
///   -EBUSY       sending (receiving) while a reservation (a peek) of this socket is open
///   -EPROTO      the peer broke the protocol

#include "gpusock/detail/sockets.cuh"
#include "gpusock/groups.cuh"
#include "gpusock/types.hpp"

namespace gpusock {

namespace detail {
struct Insides;
}

/// The socket calls; passed to kernels by value. From Context::net().
class Net {
 public:
  Net() = default;
  /// @cond INTERNAL
  Net(const detail::Side& device, const detail::Side& host) : device_(device), host_(host) {}
  /// @endcond

  /// Opens a socket that listens at `at` (port 0 picks one, see getsockname). `backlog`: connections that may wait to
  /// be accepted, 1 to 512. Of several addresses it takes the first that this host has: -EADDRNOTAVAIL and
  /// -EAFNOSUPPORT move on to the next address, other errors do not. Errors: -EADDRINUSE, -EADDRNOTAVAIL, -EACCES
  /// (beyond loopback without GPUSOCK_SECRET, see docs/semantics.md), -EMFILE (all sockets of the context are open),
  /// -ENOMEM (no memory for it), -EPROTONOSUPPORT (this context does not have the link that `at` names), -EINVAL.
  template <class Group>
  GPUSOCK_FN Socket listen(const Group& group, const Endpoint& at, int backlog = 16,
                           Deadline deadline = Deadline::never()) const;

  /// Waits for a connection to `listener` and returns its socket. Any number of groups may accept on one listener.
  template <class Group>
  GPUSOCK_FN Socket accept(const Group& group, Socket listener, Deadline deadline = Deadline::never()) const;

  /// Opens a socket connected to `to`. Several addresses are tried one after the other until a TCP connection is made,
  /// all before the deadline; if none is made, the error is the most telling one (docs/semantics.md). Errors:
  /// -ECONNREFUSED, -EHOSTUNREACH, -ENETUNREACH, -EPROTO (the peer does not speak gpusock: use link=tcp for plain TCP
  /// peers), -EPROTONOSUPPORT (this context does not have the link that `to` names, or the peer has none in common),
  /// -EACCES (the secrets differ), -EMFILE, -ENOBUFS (no memory or descriptor for its rings), -ENOMEM.
  template <class Group>
  GPUSOCK_FN Socket connect(const Group& group, const Endpoint& to, Deadline deadline = Deadline::never()) const;

  /// Sends `bytes` bytes, as send(2): waits until all are in the tx ring, and returns how many are; fewer only where
  /// the deadline, kDontWait or an error came in between. With kWaitAll that is the error instead of the count. Records
  /// (type=seqpacket): all of it is one record, or an error; -EMSGSIZE where it is longer than half the ring less 8
  /// bytes. Any number of groups may send on such a socket at the same time.
  template <class Group>
  GPUSOCK_FN std::int64_t send(const Group& group, Socket socket, const void* data, std::size_t bytes, int flags = 0,
                               Deadline deadline = Deadline::never()) const;

  /// Receives up to `bytes` bytes, as recv(2): waits for at least one; 0 is the end of the stream. Bytes that arrived
  /// before an error are delivered before it. With kWaitAll it waits for all of them; if that fails nothing is
  /// consumed, except where `bytes` exceeds the ring. With kPeek the bytes are not consumed (with kWaitAll as well: at
  /// most a ring full). Records: waits for one and returns its length, also where that is more than `bytes`: then the
  /// rest is lost. So with kPeek and no bytes it says how long the next one is.
  template <class Group>
  GPUSOCK_FN std::int64_t recv(const Group& group, Socket socket, void* data, std::size_t bytes, int flags = 0,
                               Deadline deadline = Deadline::never()) const;

  /// Waits for room and gives ring memory to write up to `bytes_max` bytes into; it may be shorter, as at the ring's
  /// end, but not empty. commit or abort ends the reservation; until then sending on this socket, and another
  /// reservation, give -EBUSY. An open reservation keeps its memory valid, also when the socket is closed meanwhile or
  /// fails: so does a socket's place in the table stay taken until the reservation ends. Size: bytes, or errors as of
  /// send; -EINVAL for no bytes. Records: all of `bytes_max` (or -EMSGSIZE), and others may go on sending; what they
  /// send arrives behind this one, so not before it ends.
  template <class Group>
  GPUSOCK_FN Span reserve(const Group& group, Socket socket, std::size_t bytes_max,
                          Deadline deadline = Deadline::never()) const;

  /// Sends the reservation's first `bytes` bytes, which all threads of the group have written, and ends it. 0; -EINVAL
  /// where nothing is reserved, or less than `bytes` (the reservation then stays open); what send would give where the
  /// socket cannot send any more: then nothing is sent.
  template <class Group>
  GPUSOCK_FN int commit(const Group& group, Socket socket, std::size_t bytes) const;

  /// Ends the reservation without sending. 0; -EINVAL where nothing is reserved.
  template <class Group>
  GPUSOCK_FN int abort(const Group& group, Socket socket) const;

  /// Waits for at least one byte and gives up to `bytes_max` arrived bytes where they lie in the ring; it may be fewer
  /// than have arrived, at the ring's end. Size 0 is the end of the stream, and negative an error as of recv, -EINVAL
  /// for no bytes: then nothing is open. Else release ends the peek; until then receiving, and another peek, give
  /// -EBUSY. An open peek keeps its memory valid as a reservation does. Records: one whole record; -EMSGSIZE, and
  /// nothing is open, where it is longer than `bytes_max`. Releasing any byte of it consumes it.
  template <class Group>
  GPUSOCK_FN Span peek(const Group& group, Socket socket, std::size_t bytes_max,
                       Deadline deadline = Deadline::never()) const;

  /// Ends the peek and consumes its first `bytes` bytes (0: none). 0; -EINVAL where nothing is peeked, or less than
  /// `bytes` (the peek then stays open); -EBADF where the socket was closed meanwhile.
  template <class Group>
  GPUSOCK_FN int release(const Group& group, Socket socket, std::size_t bytes) const;

  /// Waits until one of `count` sockets has an event, as poll(2): writes every entry's `revents` and returns how many
  /// are not zero; 0 once the deadline has passed (also Deadline::now()). The group's threads share the look: thread i
  /// takes the entries i, i + size, ... The entries may be in shared, device or mapped memory. -EINVAL, -ECANCELED.
  template <class Group>
  GPUSOCK_FN int poll(const Group& group, PollEntry* entries, int count, Deadline deadline = Deadline::never()) const;

  /// Ends one direction or both; what was sent before still arrives. Records: so does what other groups are sending
  /// when it is called; the end comes behind that, and behind an open reservation's commit or abort. 0, -EBADF or
  /// -ENOTCONN.
  template <class Group>
  GPUSOCK_FN int shutdown(const Group& group, Socket socket, Shutdown how) const;

  /// Closes the socket; the handle is invalid from here on. What was sent still arrives, except that closing a socket
  /// of link=tcp with unread input resets the connection, as with POSIX (docs/semantics.md). 0 or -EBADF.
  template <class Group>
  GPUSOCK_FN int close(const Group& group, Socket socket) const;

  /// This socket's own address and port, and its link once connected. One thread. 0, -EBADF.
  GPUSOCK_FN int getsockname(Socket socket, Endpoint& local) const;

  /// The peer's address and port, and the link. One thread. 0, -EBADF or -ENOTCONN.
  GPUSOCK_FN int getpeername(Socket socket, Endpoint& peer) const;

  /// Sets a socket option. 0; -EINVAL for a value it cannot have, or an option that is read only; -ENOPROTOOPT, -EBADF.
  template <class Group>
  GPUSOCK_FN int setsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t value) const;

  /// Reads a socket option into every thread's `value`. 0; -ENOTCONN for the buffers of a listener; -ENOPROTOOPT,
  /// -EBADF.
  template <class Group>
  GPUSOCK_FN int getsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t& value) const;

  /// How a connected socket stands; while it is in use, a moment's glance. One thread, any one. 0, -EBADF or -ENOTCONN.
  GPUSOCK_FN int stats(Socket socket, SocketStats& stats) const;

 private:
  friend struct detail::Insides;
  GPUSOCK_FN const detail::Side& side() const { return detail::on_kernels_side() ? device_ : host_; }

  detail::Side device_;
  detail::Side host_;
};

namespace detail {
/// For other interfaces to the same sockets (compat/).
struct Insides {
  GPUSOCK_FN static const Side& side(const Net& net) { return net.side(); }
};
}  // namespace detail

}  // namespace gpusock

#include "gpusock/detail/records.inl"

#include "gpusock/detail/net.inl"
#include "gpusock/detail/poll.inl"
#include "gpusock/detail/socket_options.inl"
#include "gpusock/detail/zero_copy.inl"
