#pragma once
/// @file The loop of a server: serve() accepts clients, waits for all of them with a poll set, and hands each request
/// to a function of the program. Idle, slow and broken clients cannot keep it from serving the others
/// (docs/robust_servers.md).

#include "gpusock/server/listener.cuh"
#include "gpusock/server/loop.cuh"

namespace gpusock {

/// Serves the clients of `listener`. Returns 0 when the context ends, or when the listener is closed and its clients
/// have left. Any thread of the listener's caller side may close it, also the handler. After that no new client is
/// accepted. Clients that have seats are served as before, until each leaves by itself or by a limit.
///
/// `count` groups call it at the same time. Each group passes its number `own`, and all groups pass the same `seats`:
/// an array with a Seats for each group. A block of several threads passes this_block(), or gives each of its threads a
/// number. Each number is for one group and one call. To start a second server after the first has ended (also with an
/// error), make new seats, or fill these with zeros once all groups have returned.
///
/// Group 0 accepts, and gives each client to the next group that has a free seat, so all groups must run. Until group 0
/// begins, clients wait in the listener's backlog. Group 0 waits for the seats of the other groups for
/// ServerLimits::group_start_ns before it takes seats from idle clients. If group 0 does not begin, or ends with an
/// error, no client is accepted, and the other groups end with an error, too. Each group waits for all its clients at
/// once; no call waits for a single one. If all seats are taken, the client that has been idle longest makes room; if
/// no client is idle, new clients wait in the listener's backlog. Options::sockets_max, and on a GPU connections_max,
/// must allow for as many clients as there are seats.
///
/// `handler`: `int handler(auto& client)`, a function that the whole group calls (see Client). It reads with
/// Deadline::now(), writes the answer, and returns
///   0         after it has handled a request: it is called again for the next one
///   -EAGAIN   if a part of the request has not arrived: it is called again when more has arrived. The Reader and
///             client.state keep what it needs until then. The handler reads until the Reader returns -EAGAIN: a client
///             leaves if the handler asks for more and does not take the input, end or error that is there
///             (Leave::unfinished)
///   any other number, such as Received::error() at the end of the stream: the client gets what is in the Writer, then
///             the end of the connection.
/// It is also called when the client's stream has ended or has an error (after idle_timeout_ns: -ETIMEDOUT); it then
/// reads that. A client that is displaced, or too slow, leaves without a call of the handler.
///
/// `departed`: `void departed(const Departure<State>& client)`. It is called once for each client that the handler was
/// called for, or that tell_all() has written to, when that client leaves for whatever reason. In it the program frees
/// what it keeps for the client. Only thread 0 of the group calls it, so it must not make calls of the whole group;
/// tell_all() may call it, too. In a group other than 0, a client is displaced a moment before the call.
///
/// An answer longer than the Writer's buffer closes the connection if the client does not take it at once.
///
/// Errors: those of Net::open_set(), Net::wait() and Net::accept(); -EBADF (`listener` is not a listener, or was closed
/// before group 0 began), -EINVAL (an invalid ServerLimits::idle_timeout_ns), -EBUSY (another group that serves has
/// this number, and goes on; or the listener is in another set), -EALREADY (a server with these seats has ended),
/// -EPROTOTYPE (the listener's connections carry records), -ETIMEDOUT (group 0 has not begun), -ESHUTDOWN (group 0 has
/// ended with an error).
template <class Group, class Memory, class Handler, class Departed = NoDeparture>
GPUSOCK_FN_APART int serve(const Group& group, const Net& net, Socket listener, Memory* seats, unsigned count,
                           unsigned own, const ServerLimits& limits, Handler handler, Departed departed = {}) {
  detail::ServerLoop<Group, Memory, Handler, Departed> loop(group, net, listener, seats, count, own, limits, handler,
                                                            departed);
  return loop.run();
}

}  // namespace gpusock
