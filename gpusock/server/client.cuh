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

  /// Calls `write(writer)` with the Writer of each client that this group serves, this one included; or, where it takes
  /// two arguments, `write(writer, state)` with the client's state, too: it may leave clients out. The state is const:
  /// all threads of the group call `write` with it, and only a client's own turn changes it. A client that has no
  /// room for it, in its Writer and its ring, is closed: the others do not wait for a client that does not read.
  /// Clients of other groups are not reached: a server that is to reach all of them has one group.
  template <class Write>
  GPUSOCK_FN void tell_all(Write write) {
    loop.tell_all(*this, write);
  }

  Loop& loop;  ///< that serves it
};

}  // namespace gpusock
