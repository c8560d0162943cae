#pragma once
/// @file The client that serve() passes to the function that answers requests.

#include "gpusock/io.cuh"

namespace gpusock {

/// A client whose turn it is.
template <class Loop>
struct Client {
  /// Read with Deadline::now(). A result stays in the Reader's buffer until the next call: copy into `state` what you
  /// need for longer, such as the key of a line if more data follow the line.
  Reader<typename Loop::GroupType>& reader;
  /// The Writer is empty at the beginning of a request. What is in it is sent after the function has returned.
  Writer<typename Loop::GroupType>& writer;
  /// The client's state, in the group's memory: State{} when the client comes.
  typename Loop::ClientState& state;
  Socket socket;  ///< for getpeername() and the like; leave it open
  unsigned seat;  ///< the number of the client's seat in the group

  /// Calls `write(writer)` with the Writer of each client of the server, in all its groups, this client included. If
  /// the function `write` takes two arguments, tell_all() calls `write(writer, state)` with the client's state, so that
  /// it may leave clients out. The state is const: all threads of this group call `write` with it, and only a client's
  /// own turn changes it. When tell_all() returns, all Writers have what was written, and `write` is not used any more.
  ///
  /// A client whose Writer and ring have no room for it is closed, so that a client that does not read does not delay
  /// the others. If several clients call tell_all() at the same time, in any groups, all clients get the messages in
  /// the same order. Every client that has a seat at that moment gets the message, with one exception: a client that
  /// has just displaced a client of another group may miss it, until that group has called `departed` for the
  /// displaced client. That happens before the new client's first request is handled.
  ///
  /// If several groups serve, this group visits them one after the other. At each it waits until that group has
  /// handled its current event. So a handler that takes long delays all calls of tell_all(), and no handler may wait
  /// for another client. Meanwhile other groups may write to clients of this group, and also to this client: their
  /// messages come after what `writer` has so far. A server of one group does not wait.
  template <class Write>
  GPUSOCK_FN void tell_all(Write write) {
    loop.tell_all(*this, write);
  }

  Loop& loop;  ///< the loop that serves the client
};

}  // namespace gpusock
