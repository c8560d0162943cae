#pragma once
/// @file The seats of a server's clients, and why clients leave them.

#include "gpusock/io.cuh"
#include "gpusock/server/ticket_lock.cuh"

namespace gpusock {

namespace detail {

template <class Memory, class Departed>
class SharedSeats;
template <class Group, class Memory, class Handler, class Departed>
class ServerLoop;

/// The memory that a server has for one client.
template <std::size_t kInBytes, std::size_t kOutBytes, class State>
struct Seat {
  // The group that accepts writes these two as well.
  std::uint64_t client;    ///< the client's socket plus 1; 0: the seat is free
  std::uint64_t moved_ns;  ///< when the client came, or its last request was answered
  // The rest belongs to the seat's own group. If there are several groups, only the holder of Seats::lock uses it.
  Socket served;           ///< the client to which the rest belongs
  bool present;            ///< true if that client has a state: `departed` is called when it leaves
  std::int32_t watched;    ///< the PollEvents that the client is watched for
  bool leaving;            ///< the client gets no further answer
  bool unfinished;         ///< true if Leave::unfinished is the reason
  bool shut;               ///< the client has been sent the end of the connection
  bool talking;            ///< its handler is in Client::tell_all(): others write to its Writer, and do not send
  std::uint64_t due_ns;    ///< when the client's connection is to be closed; 0: there is no such time
  std::uint64_t answered;  ///< how many of the client's bytes belong to answered requests
  ReaderProgress reading;
  WriterProgress writing;
  State state;
  char in[kInBytes];
  char out[kOutBytes];
};

}  // namespace detail

/// The clients' state in a program that keeps none.
struct NoState {};

/// Why a client left a server.
enum class Leave : std::uint8_t {
  handled,  ///< the handler returned a number that sends the client away
  slow,     ///< the client took longer than ServerLimits::request_timeout_ns to send a request or to take an answer; or
            ///< its Writer and its ring had no room for an answer, or for what Client::tell_all() writes
  failed,   ///< an answer could not be sent: the connection has failed
  displaced,   ///< the client made room for a new one (ServerLimits::displace_after_ns)
  unfinished,  ///< the handler returned -EAGAIN, which asks for more input, but left input that was there: more than
               ///< the Reader's buffer holds, the end of the stream, or an error
  ended,       ///< the server ended
};

/// A client that leaves.
template <class State>
struct Departure {
  Leave why;      ///< the reason
  State& state;   ///< the client's state, for the last time
  Socket socket;  ///< for the program's tables: it may be closed already
  unsigned seat;  ///< the number of the client's seat in the group
};

/// The default `departed` of serve().
struct NoDeparture {
  /// Does nothing.
  template <class State>
  GPUSOCK_FN void operator()(const Departure<State>&) const {}
};

/// The seats of one group of a server. They are in memory that all groups can use and that is zero at first: a
/// DeviceBuffer with one Seats for each group. kInBytes: the longest line or message that a Reader is to hold.
/// kOutBytes: the longest answer.
template <unsigned kSeats, std::size_t kInBytes = 512, std::size_t kOutBytes = 512, class State = NoState>
struct Seats {
  using ClientState = State;                  ///< what the program keeps for each client
  static constexpr unsigned kCount = kSeats;  ///< how many clients the group serves at a time
  static constexpr int kEventsMax = 16;       ///< how many events the group takes at a time

 private:
  template <class, class>
  friend class detail::SharedSeats;
  template <class, class, class, class>
  friend class detail::ServerLoop;

  std::uint64_t set;  ///< the group's poll set plus 1; 0: the group has not begun; the three largest numbers: the group
                      ///< has ended, or accepts no more. It never becomes 0 again
  detail::TicketLock lock;  ///< guards the seats if several groups serve, because each of them writes to all clients
  std::uint64_t serving;    ///< the group's poll set plus 1 while it serves, also after it accepts no more: others may
                            ///< write to its clients. Guarded by the lock
  PollEvent events[kEventsMax];  ///< the events that the group handles now
  detail::Seat<kInBytes, kOutBytes, State> seats[kSeats];
};

}  // namespace gpusock
