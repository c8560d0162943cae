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

/// A client's place in a server.
template <std::size_t kInBytes, std::size_t kOutBytes, class State>
struct Seat {
  // Written by the group that accepts, too.
  std::uint64_t client;    ///< its socket and 1; 0: the seat is free
  std::uint64_t moved_ns;  ///< when it came, or its last request was answered
  // The group's own; of several groups, the one's that holds Seats::lock.
  Socket served;           ///< whom the rest belongs to
  bool present;            ///< that client has a state: when it leaves, the program is told
  std::int32_t watched;    ///< PollEvents
  bool leaving;            ///< it gets no further answer
  bool unfinished;         ///< and that is why: Leave::unfinished
  bool shut;               ///< it was told so
  bool talking;            ///< its handler is in Client::tell_all(): what others tell it goes into its Writer alone
  std::uint64_t due_ns;    ///< when its connection is closed; 0: nothing is under way
  std::uint64_t answered;  ///< how many of its bytes belong to answered requests
  ReaderProgress reading;
  WriterProgress writing;
  State state;
  char in[kInBytes];
  char out[kOutBytes];
};

}  // namespace detail

/// What clients have of their own where a program says nothing else: nothing.
struct NoState {};

/// Why a client left a server.
enum class Leave : std::uint8_t {
  handled,  ///< the handler returned a number that sends the client away
  slow,     ///< a request, or taking an answer, lasted longer than ServerLimits::request_timeout_ns; or its Writer and
            ///< its ring had no room for an answer, or for what Client::tell_all() writes
  failed,   ///< an answer could not be sent: the connection has failed
  displaced,   ///< it made room for a new client (ServerLimits::displace_after_ns)
  unfinished,  ///< the handler returned -EAGAIN, as if a request had not come whole, and took none of what was there:
               ///< more than the Reader's buffer holds, the end of the stream, or an error
  ended,       ///< the server ended
};

/// A client that leaves.
template <class State>
struct Departure {
  Leave why;      ///< the reason
  State& state;   ///< its own, for the last time
  Socket socket;  ///< for the program's tables: it may be closed already
  unsigned seat;  ///< its number in the group
};

/// The `departed` of serve() where a program says nothing else: does nothing.
struct NoDeparture {
  /// Does nothing.
  template <class State>
  GPUSOCK_FN void operator()(const Departure<State>&) const {}
};

/// The seats of one group of a server, in memory that all groups can use and that is zero at first: a DeviceBuffer with
/// one for each group. kInBytes: the longest line or message that a Reader is to hold. kOutBytes: the longest answer.
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

  std::uint64_t set;  ///< the group's poll set and 1; 0: it has not begun; the three largest numbers: it has ended, or
                      ///< accepts no more. It is never 0 again
  detail::TicketLock lock;  ///< of the seats, where several groups serve: each tells the clients of all
  std::uint64_t serving;    ///< the group's poll set and 1 while it serves, also after it accepts no more: its clients
                            ///< may be told something. Guarded by the lock
  PollEvent events[kEventsMax];  ///< that the group handles now
  detail::Seat<kInBytes, kOutBytes, State> seats[kSeats];
};

}  // namespace gpusock
