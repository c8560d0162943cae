#pragma once
/// @file The socket calls of kernels and host threads.
///
/// The member functions of Net are the socket calls: a kernel calls them as a program calls its operating system.
///
/// Groups: a call with a `group` is collective (groups.cuh). All threads of the group make it with the same arguments
/// and get the same result. A call without a group is made by one thread. One group may send and one group may receive
/// on a socket at the same time; they may be in different kernels. If one group passes a socket on to another, the
/// program must order the calls of the two groups (a barrier, a kernel boundary, a flag with release and acquire).
///
/// Deadlines: no call hangs. Each call returns by its deadline, and at once when the context ends. A call that is given
/// no deadline waits for its socket's timeout, which is a minute by default (Deadline::by_default()). To wait for ever,
/// pass Deadline::never().
///
/// Errors are negated errno values. Each call lists all that it can return. Unless a list says otherwise, they mean:
///   -EBADF       not an open socket of this caller side: never opened, or closed (before or during the call)
///   -EINVAL      an invalid argument
///   -ENOTCONN    the socket is a listener
///   -ECANCELED   the context ends
///   -ETIMEDOUT   the deadline passed
///   -EAGAIN      the call would have to wait, and kDontWait or Deadline::now() forbids it
///   -ECONNRESET  the peer, or the network to it, is gone without an orderly end
///   -EPIPE       this side or the peer has ended this direction
///   -EBUSY       a reservation (for sending) or a peek (for receiving) of this socket is open
///   -EPROTO      the peer broke the protocol
///   -ENOMEM      no memory for this socket: it is not opened, or its connection is reset
///   -EIO         the proxy could not copy to or from rings in device memory
///   -EMFILE      all sockets of this caller side, all listeners or all descriptors of the process are in use
/// A caller side is the kernels of a context, or its host threads (docs/semantics.md, "Who may use a socket").
/// listen and connect also return other errors of the operating system, such as -ENFILE or -EPERM.

#include "gpusock/detail/sockets.cuh"
#include "gpusock/groups.cuh"
#include "gpusock/types.hpp"

namespace gpusock {

namespace detail {
struct NetAccess;
}

/// The socket calls. Context::net() returns this object; kernels take it by value.
class Net {
 public:
  Net() = default;

  /// Opens a socket that listens, and waits until it does.
  ///
  /// `at`: the address and port. Port 0 lets the system pick a port, which getsockname() returns. Of several
  /// addresses it takes the first that this host has: after -EADDRNOTAVAIL and -EAFNOSUPPORT it tries the next address,
  /// after other errors it does not. `backlog`: how many connections may wait to be accepted, 1 to 512. Returns the
  /// listener's handle.
  ///
  /// Errors: -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EAFNOSUPPORT (this host has no such kind of address), -EACCES
  /// (beyond loopback without GPUSOCK_SECRET, see docs/semantics.md; or the system reserves the port),
  /// -EPROTONOSUPPORT (this context does not have the link that `at` names), -ENOBUFS (on a GPU: rings of the size that
  /// `at` names are larger than those that the context pinned), -EMFILE, -ENOMEM, -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN Socket listen(const Group& group, const Endpoint& at, int backlog = 16,
                           Deadline deadline = Deadline::by_default()) const;

  /// Waits for a connection to `listener` and returns its socket's handle. Any number of groups may accept on one
  /// listener at the same time.
  ///
  /// Errors: -EBADF, -EINVAL (not a listener), -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN Socket accept(const Group& group, Socket listener, Deadline deadline = Deadline::by_default()) const;

  /// Opens a socket that is connected to `to`, and returns its handle.
  ///
  /// Tries the endpoint's addresses in order until it has a TCP connection; the deadline is for all of them together.
  /// It tries the next address when one fails, and beside one that has not answered for 250 ms. If no address takes the
  /// connection, the error is the most informative one (docs/semantics.md).
  ///
  /// Errors: -EINVAL, -ECONNREFUSED (no program listens there), -EHOSTUNREACH, -ENETUNREACH, -EADDRNOTAVAIL (this host
  /// has no address or free port from which to connect), -EAFNOSUPPORT (this host has no such kind of address),
  /// -ECONNRESET, -EPROTO (the peer does not speak gpusock: use link=tcp for plain TCP peers), -EPROTONOSUPPORT (this
  /// context does not have the link that `to` names, or the peer has none in common), -ENODEV (link=fabric:
  /// libfabric is not installed, or has no provider for this address), -EPROTOTYPE (the peer's socket has the other
  /// type, stream or records), -EACCES (the secrets differ), -ENOBUFS (no memory or descriptor for the rings, here or
  /// at the peer), -EMFILE, -ENOMEM, -ECANCELED, -ETIMEDOUT (the deadline, Options::handshake_timeout_ns, or the
  /// system's time for connecting), -EAGAIN.
  template <class Group>
  GPUSOCK_FN Socket connect(const Group& group, const Endpoint& to, Deadline deadline = Deadline::by_default()) const;

  /// Sends `bytes` bytes, as send(2). Waits until all of them are in the tx ring, and returns their number. It returns
  /// a smaller number only if the deadline, kDontWait or an error ends the wait. With kWaitAll it then returns the
  /// error instead of the number. With 0 bytes it returns the socket's state: 0, or the error that sending would give.
  ///
  /// `data`: memory that all threads of the group can read. `flags`: Flags that combine with |.
  ///
  /// Records (type=seqpacket): all bytes are one record. The call sends the whole record or returns an error. Any
  /// number of groups may send on such a socket at the same time.
  ///
  /// Errors: -EBADF, -EINVAL (a negative number as `bytes`), -ENOTCONN, -EPIPE, -ECONNRESET, -EBUSY (streams only),
  /// -EMSGSIZE (a record that is longer than half the ring minus 8 bytes), -EPROTO, -ENOMEM, -EIO, -ECANCELED,
  /// -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN std::int64_t send(const Group& group, Socket socket, const void* data, std::size_t bytes, int flags = 0,
                               Deadline deadline = Deadline::by_default()) const;

  /// Receives up to `bytes` bytes, as recv(2). Waits for at least one and returns how many it received; 0 is the end of
  /// the stream. Bytes that arrived before an error are delivered before the error.
  ///
  /// `data`: memory that all threads of the group can write. `flags`: kWaitAll waits for all bytes; if that fails, it
  /// consumes nothing, unless `bytes` exceeds the ring. kPeek does not consume the bytes; together with kWaitAll it
  /// waits for at most a full ring.
  ///
  /// Records: waits for one record and returns its length, even if that is more than `bytes`; the rest of the record is
  /// then lost. So with kPeek and 0 bytes the call returns the length of the next record.
  ///
  /// Errors: -EBADF, -EINVAL (a negative number as `bytes`), -ENOTCONN, -ECONNRESET, -EBUSY, -EPROTO, -ENOMEM, -EIO,
  /// -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN std::int64_t recv(const Group& group, Socket socket, void* data, std::size_t bytes, int flags = 0,
                               Deadline deadline = Deadline::by_default()) const;

  /// Waits for room in the tx ring and returns ring memory into which the group may write up to `bytes_max` bytes. The
  /// memory may be shorter, for example at the ring's end, but not empty. commit() or abort() ends the reservation.
  ///
  /// Until then, sending on this socket and another reservation return -EBUSY. The memory stays valid even if the
  /// socket is closed or fails meanwhile, so the socket's slot is not used again before the reservation ends.
  ///
  /// The memory begins where the previous bytes end (for a record, at a multiple of 8). On a GPU, an access whose size
  /// does not divide its address ends the kernel; on the CPU device it does not (docs/cpu_device.md).
  ///
  /// Records: returns room for all of `bytes_max`. Other groups may go on sending; their records arrive after this one,
  /// so not before the reservation ends.
  ///
  /// Errors, in the span's size: -EBADF, -EINVAL (0 bytes), -ENOTCONN, -EPIPE, -ECONNRESET, -EBUSY, -EMSGSIZE (a record
  /// that is too long, as for send), -EPROTO, -ENOMEM, -EIO, -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN Span reserve(const Group& group, Socket socket, std::size_t bytes_max,
                          Deadline deadline = Deadline::by_default()) const;

  /// Reserves as above, but waits until there is room for all of `bytes`. If the room passes the ring's end, its second
  /// part is in `rest`; otherwise `rest` is empty. Both parts are one reservation.
  ///
  /// Records: as above; `rest` is empty.
  ///
  /// Errors, in the span's size: -EBADF, -EINVAL (0 bytes), -ENOTCONN, -EPIPE, -ECONNRESET, -EBUSY, -EMSGSIZE (more
  /// than the ring holds), -EPROTO, -ENOMEM, -EIO, -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN Span reserve(const Group& group, Socket socket, std::size_t bytes, Span& rest,
                          Deadline deadline = Deadline::by_default()) const;

  /// Sends the first `bytes` bytes of the reservation, which the group's threads have written, and ends it. Returns 0.
  /// If `bytes` exceeds the reservation, the call returns -EINVAL and the reservation stays open. Every other error
  /// ends the reservation, and nothing is sent.
  ///
  /// Errors: -EBADF, -EINVAL (nothing is reserved, or fewer than `bytes`), -EPIPE, -ECONNRESET, -EPROTO, -ENOMEM, -EIO,
  /// -ETIMEDOUT (the connection was idle for too long), -ECANCELED.
  template <class Group>
  GPUSOCK_FN int commit(const Group& group, Socket socket, std::size_t bytes) const;

  /// Ends the reservation and sends nothing. Returns 0, also if the socket was closed meanwhile.
  ///
  /// Errors: -EBADF (not an open socket, and nothing is reserved), -EINVAL (nothing is reserved).
  template <class Group>
  GPUSOCK_FN int abort(const Group& group, Socket socket) const;

  /// Waits for at least one byte and returns up to `bytes_max` arrived bytes where they lie in the ring. It may return
  /// fewer bytes than have arrived, for example at the ring's end. Size 0 is the end of the stream: then, and after an
  /// error, no peek is open. Otherwise release() ends the peek.
  ///
  /// Until then, receiving on this socket and another peek return -EBUSY. The memory stays valid, and begins, as that
  /// of a reservation. Do not read it through `const T* __restrict`: a GPU may then keep bytes cached after the
  /// release().
  ///
  /// Records: returns one whole record. Releasing any byte of it consumes it.
  ///
  /// Errors, in the span's size: -EBADF, -EINVAL (0 bytes), -ENOTCONN, -ECONNRESET, -EBUSY, -EMSGSIZE (the next record
  /// is longer than `bytes_max`), -EPROTO, -ENOMEM, -EIO, -ECANCELED, -ETIMEDOUT, -EAGAIN.
  template <class Group>
  GPUSOCK_FN Span peek(const Group& group, Socket socket, std::size_t bytes_max,
                       Deadline deadline = Deadline::by_default()) const;

  /// Ends the peek and consumes its first `bytes` bytes (0: none). Returns 0. If `bytes` exceeds the peek, the call
  /// returns -EINVAL and the peek stays open.
  ///
  /// Errors: -EBADF (also if the socket was closed meanwhile: the peek is ended), -EINVAL (nothing is peeked, or fewer
  /// than `bytes`).
  template <class Group>
  GPUSOCK_FN int release(const Group& group, Socket socket, std::size_t bytes) const;

  /// Waits until one of `count` sockets has an event, as poll(2). Writes every entry's `revents` and returns how many
  /// of them are not zero; 0 once the deadline has passed (also with Deadline::now()).
  ///
  /// `entries`: in shared, device or mapped memory. The group's threads share the work: thread i takes the entries i,
  /// i + size, and so on. A handle that is not an open socket is no error: its entry has kPollNval.
  ///
  /// Errors: -EINVAL (a negative count, or nullptr for a positive count), -ECANCELED.
  template <class Group>
  GPUSOCK_FN int poll(const Group& group, PollEntry* entries, int count,
                      Deadline deadline = Deadline::by_default()) const;

  /// Opens a poll set. wait() on it returns those of its sockets that have an event; the cost does not grow with the
  /// number of sockets that have none. Returns the set's handle. A caller side has as many sets as
  /// Options::sockets_max, at most 256 (128 where kernels and host threads are two caller sides).
  ///
  /// Errors: -EMFILE (all sets of this caller side are in use), -ECANCELED.
  template <class Group>
  GPUSOCK_FN PollSet open_set(const Group& group) const;

  /// Adds a socket to a set, or changes how the set watches it. Returns 0. From now on wait() returns the socket while
  /// it has one of these events; with kPollEdge it returns the socket once, and again after each change that may have
  /// caused an event. kPollErr and kPollHup are reported even if not asked for. A socket is in one set at most. Any
  /// thread may call watch(), also while a group waits on the set. A closed socket leaves its set. With kPollNval the
  /// set is then woken, as by wake(), once no call on the socket is left; without it, there is no event.
  ///
  /// `events`: kPollIn, kPollOut, kPollNval and kPollEdge, combined with |. `tag`: a value that its events carry.
  ///
  /// Errors: -EBADF (no open socket or no open set of this caller side), -EINVAL (`events` has other bits), -EBUSY
  /// (another open set watches it).
  template <class Group>
  GPUSOCK_FN int watch(const Group& group, PollSet set, Socket socket, int events, std::uint64_t tag = 0) const;

  /// Takes a socket out of a set. Returns 0. A wait() that runs at that moment may still return the socket once.
  ///
  /// Errors: -EBADF (no open socket or no open set of this caller side), -ENOENT (the set does not watch it).
  template <class Group>
  GPUSOCK_FN int unwatch(const Group& group, PollSet set, Socket socket) const;

  /// Waits until a socket of the set has an event, or the set is woken. Writes up to `max` events and returns how many;
  /// 0 once the deadline has passed (also with Deadline::now()). The next calls return the events that did not fit, so
  /// that all sockets have their turn. The call may return an event a moment later than poll() would. It may also
  /// return an event that another group has used up meanwhile: use kDontWait.
  ///
  /// Only one group at a time may wait on a set. `events`: in shared, device or mapped memory, as poll()'s entries. The
  /// group's threads share the work.
  ///
  /// Errors: -EBADF (not an open set of this caller side, or closed during the call), -EINVAL (`events` is nullptr, or
  /// `max` is less than 1), -EBUSY (another group waits on it), -ECANCELED.
  template <class Group>
  GPUSOCK_FN int wait(const Group& group, PollSet set, PollEvent* events, int max,
                      Deadline deadline = Deadline::by_default()) const;

  /// Wakes the group that waits on a set, or the next wait() on it. That wait() returns one event with kPollWake for
  /// all wake() calls since the last such event, and for all sockets watched with kPollNval that were closed. Returns
  /// 0. Kernels and host threads may wake sets of either caller side. The group can then read what the caller wrote
  /// before.
  ///
  /// Errors: -EBADF.
  template <class Group>
  GPUSOCK_FN int wake(const Group& group, PollSet set) const;

  /// Closes a set. Returns 0. Its sockets stay open, and other sets may watch them.
  ///
  /// Errors: -EBADF.
  template <class Group>
  GPUSOCK_FN int close_set(const Group& group, PollSet set) const;

  /// Ends one direction or both. Returns 0. What was sent before still arrives. Records: what other groups are sending
  /// at that moment also arrives. The end comes after that, and after an open reservation's commit or abort.
  ///
  /// Errors: -EBADF, -ENOTCONN, -EINVAL (not a Shutdown).
  template <class Group>
  GPUSOCK_FN int shutdown(const Group& group, Socket socket, Shutdown how) const;

  /// Closes the socket; its handle is invalid from then on. Returns 0. What was sent still arrives, with one exception:
  /// closing a socket of link=tcp with unread input resets the connection, as with POSIX (docs/semantics.md).
  ///
  /// Errors: -EBADF.
  template <class Group>
  GPUSOCK_FN int close(const Group& group, Socket socket) const;

  /// Writes this socket's own address and port to `local`, and its link once it is connected. Returns 0. One thread.
  ///
  /// Errors: -EBADF.
  GPUSOCK_FN int getsockname(Socket socket, Endpoint& local) const;

  /// Writes the peer's address and port, and the link, to `peer`. Returns 0. One thread.
  ///
  /// Errors: -EBADF, -ENOTCONN.
  GPUSOCK_FN int getpeername(Socket socket, Endpoint& peer) const;

  /// Sets a socket option. Returns 0.
  ///
  /// Errors: -EBADF, -EINVAL (an invalid value, or an option that is read only), -ENOPROTOOPT (no such option).
  template <class Group>
  GPUSOCK_FN int setsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t value) const;

  /// Reads a socket option into every thread's `value`. Returns 0. An error leaves `value` unchanged.
  ///
  /// Errors: -EBADF, -ENOTCONN (the buffers of a listener), -ENOPROTOOPT (no such option).
  template <class Group>
  GPUSOCK_FN int getsockopt(const Group& group, Socket socket, SocketOption option, std::int64_t& value) const;

  /// Writes a connected socket's counters to `stats`. While other threads use the socket, the counters may belong to
  /// slightly different moments. Returns 0. One thread.
  ///
  /// Errors: -EBADF, -ENOTCONN.
  GPUSOCK_FN int stats(Socket socket, SocketStats& stats) const;

 private:
  friend struct detail::NetAccess;
  Net(const detail::Side& device, const detail::Side& host) : device_(device), host_(host) {}
  GPUSOCK_FN const detail::Side& side() const { return detail::on_kernels_side() ? device_ : host_; }

  detail::Side device_;
  detail::Side host_;
};

namespace detail {
/// Access to Net for contexts, which make a Net, and for other interfaces to the same sockets (compat/).
struct NetAccess {
  static Net make(const Side& device, const Side& host) { return Net(device, host); }
  GPUSOCK_FN static const Side& side(const Net& net) { return net.side(); }
  // Makes `net` the Net of the owner of `socket` (OwnedSocket), or of no owner (-1). `holds`: Side::owner_holds.
  GPUSOCK_FN static void own(Net& net, Socket socket, unsigned& holds) {
    holds = 0;
    for (Side* side : {&net.device_, &net.host_}) side->owned = socket, side->owner_holds = &holds;
  }
};
}  // namespace detail

}  // namespace gpusock

#include "gpusock/detail/records.inl"

#include "gpusock/detail/net.inl"
#include "gpusock/detail/poll.inl"
#include "gpusock/detail/poll_set.inl"
#include "gpusock/detail/socket_options.inl"
#include "gpusock/detail/zero_copy.inl"
