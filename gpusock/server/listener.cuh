#pragma once
/// @file Listeners that a host thread opens for kernels.

#include "gpusock/gpusock.hpp"
#include "gpusock/device.cuh"

namespace gpusock {

namespace detail {
template <class = void>
__global__ void open_listener(Net net, Endpoint at, int backlog, Socket* listener, Endpoint* where) {
  *listener = net.listen(this_thread(), at, backlog);
  if (*listener >= 0) net.getsockname(*listener, *where);
}
}  // namespace detail

/// A socket of a context's kernels that listens.
struct Listener {
  Socket socket;   ///< for accept() and serve() in kernels
  Endpoint where;  ///< where clients connect; a port 0 is replaced by the port that was chosen
};

/// Opens a listener for a context's kernels. A host thread calls it before it launches resident kernels: it allocates
/// memory, and on a GPU that waits until running kernels have ended. Throws Error with the errno of Net::listen(), and
/// what launch() and Stream throw.
inline Listener open_listener(Context& context, const Endpoint& at, int backlog = 128) {
  Stream stream(context);
  Mapped<Listener> opened(context, 1);
  launch(context, {.grid = 1, .block = 1, .shared_bytes = 0, .stream = &stream}, detail::open_listener<>, context.net(),
         at, backlog, &opened[0].socket, &opened[0].where);
  stream.synchronize();
  if (opened[0].socket < 0) throw Error(-opened[0].socket, "listening at " + at.to_string());
  return opened[0];
}

}  // namespace gpusock
