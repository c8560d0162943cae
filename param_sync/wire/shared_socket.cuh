#pragma once
/// @file Sockets that kernels of a rank share while connections are opened.
///
///   label  operation     order    scope   partner  data protected
///   U1     socket.store  release  device  U2       the socket's state on this side: the hello was sent and received
///   U2     socket.load   acquire  device  U1       the same, before another kernel calls with the socket

#include "gpusock/device.cuh"

#include <cuda/atomic>

namespace param_sync {

/// A socket in device memory. `Handle` is a parameter since the model checker uses words of 64 bits.
template <class Handle = gpusock::Socket>
class SharedSocket {
 public:
  /// The `socket` outlives this object.
  __device__ explicit SharedSocket(const Handle& socket) : socket_(const_cast<Handle&>(socket)) {}

  /// The socket; negative while its connection is not open.
  __device__ Handle get() const { return socket_.load(cuda::memory_order_acquire); }  // U2, pairs with U1
  /// True once the connection is open.
  __device__ bool is_open() const { return get() >= 0; }
  /// Publishes the socket of a connection that is open.
  __device__ void set(Handle socket) const { socket_.store(socket, cuda::memory_order_release); }  // U1, pairs with U2

 private:
  cuda::atomic_ref<Handle, cuda::thread_scope_device> socket_;
};

}  // namespace param_sync
