#pragma once
/// @file What the function that answers a request gets: a client.

#include "gpusock/io.cuh"

namespace gpusock {

/// A client whose turn it is.
template <class Loop>
struct Client {
  /// Read with Deadline::now(). What it returns is in its buffer until the next call: copy into `state` what you need
  /// for longer, as the key of a line after which data follow.
  Reader<typename Loop::GroupType>& reader;
  /// Empty at the beginning of a request. What is in it is sent once the function has returned.
  Writer<typename Loop::GroupType>& writer;
  /// The client's own, in the group's memory: State{} when it comes.
  typename Loop::ClientState& state;
  Socket socket;  ///< for getpeername() and the like; leave it open
  unsigned seat;  ///< its number in the group

  /// Calls `write(writer)` with the Writer of each client of the server, in all its groups, this client included; or,
  /// where it takes two arguments, `write(writer, state)` with the client's state, too: it may leave clients out. The
  /// state is const: all threads of this group call `write` with it, and only a client's own turn changes it. When this
  /// returns, all Writers have what is written: `write` and what it refers to are needed no longer.
  ///
  /// A client that has no room for it, in its Writer and its ring, is closed: the others do not wait for a client that
  /// does not read. Clients that tell at the same time, in any groups: all clients get what they tell in one order.
  /// A client gets it that has a seat at that moment. One that has just displaced a client of another group may miss
  /// it until that group has called `departed` for the other: before the new client's first request is handled.
  ///
  /// Where several groups serve, this group visits them one after the other, and waits at each until that group has
  /// handled the event of a client that it is at. So a handler that lasts long holds up those that tell, and none may
  /// wait for another client. Meanwhile other groups may write to the clients of this one: also to this client, after
  /// what `writer` has until now. A server of one group waits for nothing.
  template <class Write>
  GPUSOCK_FN void tell_all(Write write) {
    loop.tell_all(*this, write);
  }

  Loop& loop;  ///< that serves it
};

}  // namespace gpusock
