#pragma once
/// @file The loop of a server: serve() accepts clients, waits for all of them with a poll set, and hands each request
/// to a function of the program. Idle, slow and broken clients cannot keep it from serving the others
/// (docs/robust_servers.md).

#include "gpusock/server/listener.cuh"
#include "gpusock/server/loop.cuh"

namespace gpusock {

/// Serves the clients of `listener` until the context ends, or until the listener is closed and its clients have left:
/// then it returns 0. After the listener is closed (by any thread of its side, also by the handler) no client comes,
/// and those that have seats are served as before: each leaves by itself, or by a limit.
///
/// Called by `count` groups at the same time, each with its number `own` and all with the same `seats`: an array of a
/// Seats for each group. Each number is for one group, and for one call: for a second server, after the first has ended
/// (with an error, too), make new seats, or fill these with zeros once all groups have returned. A block of several
/// threads passes this_block(), or gives each thread a number. Clients may be given to any of the groups, so all must
/// run: clients wait in the listener's backlog until group 0 begins, and group 0 waits for the seats of the others for
/// ServerLimits::group_start_ns before it takes seats from idle clients. Where group 0 does not begin, or ends with an
/// error, the others end with an error, too: nothing accepts. Group 0 accepts, and gives each client to the
/// next group that has a free seat. Each group waits for all its clients at once, and no call waits for a single one.
/// Where all seats are taken, the client that was idle longest makes room; as long as there is none, new clients wait
/// in the listener's backlog.
/// (Options::sockets_max, and on a GPU connections_max, must allow for as many clients as there are seats.)
///
/// `handler`: `int handler(auto& client)`, a function that the whole group calls (see Client). It reads with
/// Deadline::now(), writes the answer, and returns
///   0         a request was handled: it is called again for the next one
///   -EAGAIN   the request has not come whole: it is called again when more has come. What it must remember until then
///             is in the Reader, and in client.state. Read until the Reader says so: a client whose input, end or error
///             the handler leaves where it is, leaves (Leave::unfinished)
///   any other number, as Received::error() of the end of the stream: the client gets what is in the Writer, then the
///             end of the connection.
/// It is also called when the client has ended or an error has come (idle_timeout_ns: -ETIMEDOUT), and reads that. A
/// client that is displaced, or too slow, leaves without a call of the handler.
///
/// `departed`: `void departed(const Departure<State>& client)`, called once for each client that the handler was called
/// for, or that tell_all() has written to, when it leaves, for whatever reason: here the program frees what it keeps
/// for the client. One thread of the group calls it (thread 0), so it makes no calls for the group; tell_all() may call
/// it, too. In another group than 0, a client is displaced a moment before the call.
///
/// An answer longer than the Writer's buffer closes the connection if the client does not take it at once.
///
/// Errors: those of Net::open_set(), Net::wait() and Net::accept(); -EBADF (the listener was closed before group 0
/// began, or is none), -EINVAL (ServerLimits::idle_timeout_ns), -EBUSY (another group that serves has this number: it
/// goes on; or the listener is in another set), -EALREADY (a server with these seats has ended), -EPROTOTYPE (the
/// listener's connections carry records), -ETIMEDOUT (group 0 has not begun), -ESHUTDOWN (group 0 has ended with an
/// error).
template <class Group, class Memory, class Handler, class Departed = NoDeparture>
GPUSOCK_FN_APART int serve(const Group& group, const Net& net, Socket listener, Memory* seats, unsigned count,
                           unsigned own, const ServerLimits& limits, Handler handler, Departed departed = {}) {
  detail::ServerLoop<Group, Memory, Handler, Departed> loop(group, net, listener, seats, count, own, limits, handler,
                                                            departed);
  return loop.run();
}

}  // namespace gpusock
