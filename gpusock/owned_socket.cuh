#pragma once
/// @file OwnedSocket: a group is counted into a socket once, instead of in each call.
///
/// Each call counts itself into its socket and out of it, so that a close by another group waits for the call. This
/// costs two atomics and a fence. A group that makes many calls on one socket can be counted once for all of them. The
/// socket itself does not change: other groups may use it, or close it, at the same time, with the Net that the context
/// gave them.
///
///     __global__ void echo(gpusock::Net net, gpusock::Socket listener) {
///       const auto block = gpusock::this_block();
///       gpusock::OwnedSocket client(block, net, net.accept(block, listener));
///       if (client.error() != 0) return;
///       __shared__ char bytes[1024];
///       for (;;) {
///         const auto got = client.net().recv(block, client.socket(), bytes, sizeof bytes);
///         if (got <= 0 || client.net().send(block, client.socket(), bytes, got) < 0) break;
///       }
///     }  // closes the client

#include "gpusock/device.cuh"

#include "gpusock/detail/owning.inl"

namespace gpusock {

/// Owns a socket in a scope, and closes it at the scope's end. All threads of the group make it with the same
/// arguments, and call each of its functions together, including the destructor. It is neither copied nor moved.
///
/// If another group closes the socket, the owner's next calls return -EBADF, and the connection ends when the owner's
/// scope does. Two groups may both own a socket if one only sends and the other only receives. On the CPU device, a
/// kernel that fails runs no destructors: its sockets stay open, and have no owner any more.
template <class Group>
class OwnedSocket {
 public:
  /// `socket`: a socket of `net`, or the negated errno of a call that should have returned one.
  GPUSOCK_FN OwnedSocket(const Group& group, const Net& net, Socket socket)
      : group_(group),
        socket_(socket),
        error_(detail::begin_owning(group, detail::NetAccess::side(net), socket)),
        net_(net) {
    detail::NetAccess::own(net_, error_ == 0 ? socket : -1, holds_);
  }
  GPUSOCK_FN ~OwnedSocket() {
    if (error_ == 0 && !detail::leaves_by_exception(detail::NetAccess::side(net_))) close();
  }
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;

  /// Returns 0 while the socket is owned. Otherwise returns why it is not: the negated errno that the constructor was
  /// given; -EBADF (the socket is not open, or was released or closed); -EINVAL (the constructor was given the net() of
  /// this socket's owner); or -ENOMEM.
  GPUSOCK_FN int error() const { return error_; }

  /// The Net with which the owner makes its calls. It lives as long as this object, and only this group may use it. Its
  /// calls on the owned socket are not counted; its calls on other sockets are counted, as those of any Net.
  GPUSOCK_FN const Net& net() const { return net_; }
  /// The socket that the constructor, or change(), was given.
  GPUSOCK_FN Socket socket() const { return socket_; }

  /// Releases the socket and owns `socket` of the same context instead. Does nothing if `socket` is owned already.
  /// Returns error().
  GPUSOCK_FN int change(Socket socket) {
    if (error_ == 0 && socket == socket_) return 0;
    release();
    socket_ = socket;
    error_ = detail::begin_owning(group_, detail::NetAccess::side(net_), socket);
    if (error_ == 0) detail::NetAccess::own(net_, socket, holds_);
    return error_;
  }

  /// Ends the ownership, and leaves the socket open. An open reservation or peek of the owner is given up: nothing of
  /// it is sent or consumed. Returns the socket, or error().
  GPUSOCK_FN Socket release() {
    if (error_ != 0) return error_;
    end();
    return socket_;
  }

  /// Ends the ownership, and closes the socket. An open reservation or peek of the owner is given up, as in release().
  /// Returns 0; or error(), or -EBADF if another group has closed the socket.
  GPUSOCK_FN int close() {
    if (error_ != 0) return error_;
    const int result = net_.close(group_, socket_);
    end();
    return result;
  }

 private:
  GPUSOCK_FN void end() {
    detail::end_owning(group_, detail::NetAccess::side(net_));
    detail::NetAccess::own(net_, -1, holds_);
    error_ = -EBADF;
  }

  Group group_;
  Socket socket_;
  int error_;
  unsigned holds_;
  Net net_;
};

}  // namespace gpusock
