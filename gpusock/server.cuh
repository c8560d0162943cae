#pragma once
/// @file The loop of a server: serve() accepts clients, waits for all of them with a poll set, and hands each request
/// to a function of the program. Idle, slow and broken clients cannot keep it from serving the others
/// (docs/robust_servers.md).

#include "gpusock/gpusock.hpp"
#include "gpusock/io.cuh"
#include "gpusock/owned_socket.cuh"

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
  Endpoint where;  ///< as clients are to name it: port 0 has become a port
};

/// Opens a listener for a context's kernels. Called by a host thread, before resident kernels are launched: it makes
/// memory, for which a GPU waits until they end. Throws Error with what Net::listen() returns, and what launch() and
/// Stream throw.
inline Listener open_listener(Context& context, const Endpoint& at, int backlog = 128) {
  Stream stream(context);
  Mapped<Listener> opened(context, 1);
  launch(context, {.grid = 1, .block = 1, .shared_bytes = 0, .stream = &stream}, detail::open_listener<>, context.net(),
         at, backlog, &opened[0].socket, &opened[0].where);
  stream.synchronize();
  if (opened[0].socket < 0) throw Error(-opened[0].socket, "listening at " + at.to_string());
  return opened[0];
}

/// The limits that serve() sets its clients. The largest number means none.
struct ServerLimits {
  std::uint64_t idle_timeout_ns = 60'000'000'000;     ///< a client is reset after so long without a byte to
                                                      ///< or from it: one that only listens is not idle. Not 0,
                                                      ///< and at most 12 days (or none)
  std::uint64_t request_timeout_ns = 10'000'000'000;  ///< for the rest of a request once it has begun, and for the
                                                      ///< client to take the answer; then its connection is closed
  std::uint64_t displace_after_ns = 1'000'000'000;    ///< where all seats are taken: a client without an answered
                                                      ///< request for so long makes room for a new one
  std::uint64_t farewell_ns = 1'000'000'000;          ///< for the client to end its side after the last answer
  std::uint64_t group_start_ns = 10'000'000'000;      ///< for the groups to begin: group 0 keeps new clients waiting
                                                      ///< for the others' seats so long after it began, and the others
                                                      ///< wait for group 0 so long after they began
};

namespace detail {

/// A client's place in a server.
template <std::size_t kInBytes, std::size_t kOutBytes, class State>
struct Seat {
  // Written by the group that accepts, too.
  std::uint64_t client;    ///< its socket and 1; 0: the seat is free
  std::uint64_t moved_ns;  ///< when it came, or its last request was answered
  // The group's own.
  Socket served;           ///< whom the rest belongs to
  bool present;            ///< that client has a state: when it leaves, the program is told
  std::int32_t watched;    ///< PollEvents
  bool leaving;            ///< it gets no further answer
  bool unfinished;         ///< and that is why: Leave::unfinished
  bool shut;               ///< it was told so
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

  /// @cond INTERNAL
  std::uint64_t set;  ///< the group's poll set and 1; 0: it has not begun; the three largest numbers: it has ended, or
                      ///< accepts no more. Nobody makes it 0 again
  PollEvent events[kEventsMax];  ///< that the group handles now
  detail::Seat<kInBytes, kOutBytes, State> seats[kSeats];
  /// @endcond
};

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

namespace detail {

/// serve(), of one group. Which socket has which seat is an atomic word of the seat: the group that accepts fills it,
/// and who changes it from a client to something else closes that client.
template <class Group, class Memory, class Handler, class Departed>
class ServerLoop {
 public:
  using GroupType = Group;
  using ClientState = typename Memory::ClientState;

  GPUSOCK_FN ServerLoop(const Group& group, const Net& net, Socket listener, Memory* all, unsigned count, unsigned own,
                        const ServerLimits& limits, Handler& handler, Departed& departed)
      : group_(group),
        net_(net),
        clients_net_(net),
        listener_(listener),
        all_(all),
        count_(count),
        own_(all[own]),
        accepts_(own == 0),
        limits_(limits),
        handler_(handler),
        departed_(departed) {}

  GPUSOCK_FN int run() {
    set_ = net_.open_set(group_);
    auto error = set_ < 0 ? set_
                          : static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return begin_serving(); }));
    if (!accepts_) awaited_until_ns_ = later(clock_of_group(), limits_.group_start_ns);
    while (error == 0) error = turn();
    by_leader(group_, [&]() -> std::int64_t {
      end(error);
      return 0;
    });
    return error == -ECANCELED || error == kDone ? 0 : error;
  }

  /// For Client::tell_all().
  template <class Write>
  GPUSOCK_FN_APART void tell_all(Client<ServerLoop>& teller, Write& write) {
    for (unsigned i = 0; i < Memory::kCount; ++i) {
      if (i == teller.seat) {
        write_to(teller.writer, teller.state, write);
      } else {
        tell(i, write);
      }
    }
  }

 private:
  using OneSeat = std::remove_reference_t<decltype(std::declval<Memory&>().seats[0])>;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::uint64_t kEnded = ~std::uint64_t{0};  ///< in Seats::set
  static constexpr std::uint64_t kFailed = kEnded - 1;        ///< in Seats::set: ended, and the context has not
  static constexpr std::uint64_t kClosed = kFailed - 1;       ///< in Seats::set: the listener is closed
  static constexpr int kDone = 1;                             ///< of a turn: no client is left, and none will come
  static constexpr int kClosing = 2;                          ///< the listener is closed
  static constexpr std::size_t kDrainBytes = 64 << 10;
  static constexpr int kTurnsMax = 16;  ///< requests of one client, or new clients, before the others have their turn

  GPUSOCK_FN static std::uint64_t later(std::uint64_t from_ns, std::uint64_t by_ns) {
    return by_ns > kNever - from_ns ? kNever : from_ns + by_ns;
  }
  GPUSOCK_FN static Deadline deadline_at(std::uint64_t at_ns) {
    const std::uint64_t now_ns = clock_ns();
    return at_ns == kNever ? Deadline::never() : at_ns <= now_ns ? Deadline::now() : Deadline::after_ns(at_ns - now_ns);
  }
  GPUSOCK_FN static bool is_open(std::uint64_t set) { return set != 0 && set < kClosed; }
  /// The leader's clock.
  GPUSOCK_FN std::uint64_t clock_of_group() const {
    return static_cast<std::uint64_t>(by_leader(group_, [] { return static_cast<std::int64_t>(clock_ns()); }));
  }
  /// Relaxed: the seat's other words are the group's own, or hints. Before it reads what belongs to a client, the group
  /// has seen its event, which comes after the watch() of the group that accepted it.
  GPUSOCK_FN static std::uint64_t load(std::uint64_t& word) { return DeviceRef(word).load(ringbuf::kRelaxed); }

  /// Takes the seats. Tells the others that this group has a set, and group 0 that there are more seats. Both ends
  /// change group 0's word: so whichever comes second knows of the first.
  GPUSOCK_FN_APART int begin_serving() {
    if (idle_option_ns() == 0) return -EINVAL;
    Endpoint at;
    if (net_.getsockname(listener_, at) == 0 && at.type == SocketType::seqpacket) return -EPROTOTYPE;
    if (accepts_) began_ns_ = clock_ns();
    std::uint64_t before = 0;  // released with what the set is; group 0 acquires it in admit()
    seated_ = DeviceRef(own_.set).compare_exchange_strong(before, static_cast<std::uint64_t>(set_) + 1,
                                                          ringbuf::kAcqRel);
    if (!seated_) return is_open(before) ? -EBUSY : -EALREADY;
    if (accepts_) return watch_listener(true);
    const std::uint64_t accepting = DeviceRef(all_[0].set).fetch_add(0, ringbuf::kAcqRel);
    wake_accepting(accepting);
    return accepting == kFailed ? -ESHUTDOWN : accepting == kClosed ? kDone : 0;
  }

  /// The idle timeout as the sockets' option has it; 0 if it cannot be set.
  GPUSOCK_FN std::int64_t idle_option_ns() const {
    constexpr std::uint64_t kMostNs = std::uint64_t{table::SocketOptions::kIdleMsMax} * 1'000'000;
    if (limits_.idle_timeout_ns == kNever) return -1;
    return limits_.idle_timeout_ns > kMostNs ? 0 : static_cast<std::int64_t>(limits_.idle_timeout_ns);
  }

  /// For a group that does not accept: 0 while group 0 does, or may begin in time.
  GPUSOCK_FN int look_at_accepting(bool in_time) const {
    const std::uint64_t set = DeviceRef(all_[0].set).load(ringbuf::kAcquire);  // with the last clients that it seated
    if (set == kClosed) return kClosing;
    return set == kFailed ? -ESHUTDOWN : set == 0 && !in_time ? -ETIMEDOUT : 0;
  }

  /// A group's set, or -1: it has not begun, or has ended.
  GPUSOCK_FN PollSet open_set_of(std::uint64_t group) const {
    const std::uint64_t set = DeviceRef(all_[group].set).load(ringbuf::kAcquire);
    return is_open(set) ? static_cast<PollSet>(set - 1) : -1;
  }

  GPUSOCK_FN void wake_accepting(std::uint64_t set) const {
    if (is_open(set)) net_.wake(this_thread(), static_cast<PollSet>(set - 1));
  }

  /// Waits once, and handles what has come.
  GPUSOCK_FN_APART int turn() {
    const std::uint64_t own_due_ns = accepts_ ? room_due_ns_ : awaited_until_ns_;
    const std::uint64_t until_ns = own_due_ns < next_due_ns_ ? own_due_ns : next_due_ns_;
    const int count = net_.wait(group_, set_, own_.events, Memory::kEventsMax, deadline_at(until_ns));
    if (count < 0) return count;
    bool look = false;
    for (int i = 0; i < count; ++i) {
      const PollEvent event = own_.events[i];
      if (event.socket < 0 || event.socket == listener_) {
        look = true;  // a client has come, or a seat became free; or group 0 has ended
      } else {
        serve(event);
      }
    }
    const std::uint64_t now_ns = clock_of_group();
    if (now_ns >= next_due_ns_) sweep(now_ns);
    if (look) notice_displaced();
    if (!closing_) {
      const int error = accepts_ ? accept_in_turn(look, now_ns) : await_in_turn(look, now_ns);
      if (error != kClosing) return error;
      closing_ = true;
      awaited_until_ns_ = kNever;
    }
    return static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return has_clients() ? 0 : kDone; }));
  }

  GPUSOCK_FN int accept_in_turn(bool look, std::uint64_t now_ns) {
    if (!look && !freed_ && now_ns < room_due_ns_) return 0;
    freed_ = false;
    const auto error = static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return accept_clients(); }));
    room_due_ns_ = static_cast<std::uint64_t>(
        by_leader(group_, [&] { return static_cast<std::int64_t>(room_due_ns_); }));
    return error;
  }

  GPUSOCK_FN int await_in_turn(bool look, std::uint64_t now_ns) {
    const bool in_time = now_ns < awaited_until_ns_;
    if (!in_time) awaited_until_ns_ = kNever;
    if (!look && in_time) return 0;
    return static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return look_at_accepting(in_time); }));
  }

  GPUSOCK_FN bool has_clients() {
    for (OneSeat& seat : own_.seats) {
      if (load(seat.client) != 0) return true;
    }
    return false;
  }

  // The group that accepts; its leader alone.

  struct Plan {
    std::uint64_t seat = kNever;    ///< of group seat % count_; kNever: none is free before due_ns
    std::uint64_t due_ns = kNever;  ///< when the client that is idle longest makes room
  };

  GPUSOCK_FN OneSeat& seat_of(std::uint64_t seat) { return all_[seat % count_].seats[seat / count_]; }

  /// Finds a seat, from the one after the last on, so that all groups have their share.
  GPUSOCK_FN_APART Plan find_seat() {
    Plan plan;
    std::uint64_t oldest_ns = kNever;
    bool all_began = true;
    const std::uint64_t seats = std::uint64_t{count_} * Memory::kCount;
    for (std::uint64_t i = 1; i <= seats; ++i) {
      const std::uint64_t seat = (last_ + i) % seats;
      const std::uint64_t set = load(all_[seat % count_].set);
      if (set == 0) all_began = false;
      if (!is_open(set)) continue;
      if (load(seat_of(seat).client) == 0) return {seat, 0};
      const std::uint64_t moved_ns = load(seat_of(seat).moved_ns);
      if (moved_ns >= oldest_ns) continue;
      oldest_ns = moved_ns;
      plan = {seat, later(moved_ns, limits_.displace_after_ns)};
    }
    // The seats of a group that has not begun are free, and it will say when it begins. That may be never.
    const std::uint64_t awaited_ns = later(began_ns_, limits_.group_start_ns);
    if (!all_began && plan.due_ns < awaited_ns) plan.due_ns = awaited_ns;
    if (plan.due_ns == kNever || clock_ns() < plan.due_ns) plan.seat = kNever;
    return plan;
  }

  /// For its clients, or only for its end. -EBADF if it is closed.
  GPUSOCK_FN int watch_listener(bool watch) {
    if (watch == watches_listener_) {
      std::int64_t ignored = 0;
      return net_.getsockopt(this_thread(), listener_, SocketOption::no_delay, ignored);
    }
    watches_listener_ = watch;
    return net_.watch(this_thread(), set_, listener_, watch ? kPollIn | kPollNval : kPollNval);
  }

  /// Gives seats to those that wait. kClosing if the listener is closed: then the other groups are told.
  GPUSOCK_FN_APART int accept_clients() {
    room_due_ns_ = kNever;
    const int error = accept_waiting();
    if (error != -EBADF) return error;
    room_due_ns_ = kNever;
    DeviceRef(own_.set).exchange(kClosed, ringbuf::kAcqRel);  // as in end()
    wake_others();
    return kClosing;
  }

  GPUSOCK_FN void wake_others() const {
    for (unsigned i = 1; i < count_; ++i) {
      if (const PollSet other = open_set_of(i); other >= 0) net_.wake(this_thread(), other);
    }
  }

  /// Where there is no seat, clients go on waiting in the listener's backlog.
  GPUSOCK_FN_APART int accept_waiting() {
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      const Plan plan = find_seat();
      if (plan.seat == kNever) {
        room_due_ns_ = plan.due_ns;
        return watch_listener(false);
      }
      // No error of one client or of a shortage: until the context has a socket and rings for a client, it waits in the
      // listener's backlog.
      const Socket client = net_.accept(this_thread(), listener_, Deadline::now());
      if (client == -EAGAIN) break;
      if (client < 0) return client;
      last_ = plan.seat;
      admit(client);
    }
    return watch_listener(true);
  }

  GPUSOCK_FN_APART void admit(Socket client) {
    OneSeat& seat = seat_of(last_);
    // Cannot fail: the value was looked at, and nobody else has the socket yet.
    net_.setsockopt(this_thread(), client, SocketOption::idle_timeout_ns, idle_option_ns());
    const PollSet set = open_set_of(last_ % count_);
    // First of all, so that the other group may watch the client for something else once it finds it in the seat.
    if (set < 0 || net_.watch(this_thread(), set, client, kPollIn, last_ / count_) != 0) {
      net_.close(this_thread(), client);  // that group has ended meanwhile: a new socket is in no set
      return;
    }
    DeviceRef(seat.moved_ns).store(clock_ns(), ringbuf::kRelaxed);
    const std::uint64_t before =
        DeviceRef(seat.client).exchange(static_cast<std::uint64_t>(client) + 1, ringbuf::kAcqRel);
    if (before != 0) displace(seat, static_cast<Socket>(before - 1), set);
    if (open_set_of(last_ % count_) < 0) free_seat(seat, client);
  }

  /// A client has lost its seat. Its group tells the program.
  GPUSOCK_FN void displace(OneSeat& seat, Socket client, PollSet set) {
    net_.close(this_thread(), client);
    if (last_ % count_ != 0) {
      net_.wake(this_thread(), set);
    } else {
      depart(seat, Leave::displaced);
    }
  }

  // Every group.

  /// Frees a client's seat, unless another one has it already. The leader alone.
  GPUSOCK_FN_APART void free_seat(OneSeat& seat, Socket client) {
    std::uint64_t expected = static_cast<std::uint64_t>(client) + 1;
    if (!DeviceRef(seat.client).compare_exchange_strong(expected, 0, ringbuf::kRelaxed)) return;
    net_.close(this_thread(), client);
    if (!accepts_) wake_accepting(DeviceRef(all_[0].set).load(ringbuf::kAcquire));
  }

  // Of the group's own seats; the leader alone.

  /// Tells the program, once, that the client whose state is in the seat leaves.
  GPUSOCK_FN void depart(OneSeat& seat, Leave why) {
    if (!seat.present) return;
    seat.present = false;
    departed_(Departure<ClientState>{why, seat.state, seat.served, static_cast<unsigned>(&seat - own_.seats)});
  }

  GPUSOCK_FN void leave(OneSeat& seat, Socket client, Leave why) {
    // A call may have met the server's end, or the end of the client's seat, first.
    depart(seat, canceled(NetAccess::side(net_)) ? Leave::ended : was_displaced(seat) ? Leave::displaced : why);
    free_seat(seat, client);
  }

  GPUSOCK_FN bool was_displaced(OneSeat& seat) const {
    return seat.present && load(seat.client) != static_cast<std::uint64_t>(seat.served) + 1;
  }

  /// Group 0 gives seats of the other groups to new clients, which may be silent: so it wakes them.
  GPUSOCK_FN_APART void notice_displaced() {
    by_leader(group_, [&]() -> std::int64_t {
      for (OneSeat& seat : own_.seats) {
        if (was_displaced(seat)) depart(seat, Leave::displaced);
      }
      return 0;
    });
  }

  /// Closes those that took too long, and finds out when to look again.
  GPUSOCK_FN_APART void sweep(std::uint64_t now_ns) {
    freed_ = true;
    next_due_ns_ = static_cast<std::uint64_t>(by_leader(group_, [&]() -> std::int64_t {
      std::uint64_t next_ns = kNever;
      for (OneSeat& seat : own_.seats) {
        if (seat.due_ns == 0 || load(seat.client) != static_cast<std::uint64_t>(seat.served) + 1) continue;
        if (seat.due_ns <= now_ns) {
          leave(seat, seat.served, seat.leaving ? why_sent_away(seat.unfinished) : Leave::slow);
        } else if (seat.due_ns < next_ns) {
          next_ns = seat.due_ns;
        }
      }
      return static_cast<std::int64_t>(next_ns);
    }));
  }

  GPUSOCK_FN_APART void end(int error) {
    // Both ends change group 0's word: a group that begins later finds it, and those that began before are told. Where
    // the seats are another's, their word stays.
    const std::uint64_t how = error == -ECANCELED ? kEnded : error == kDone ? kClosed : kFailed;
    std::uint64_t unused = 0;
    const bool told = seated_ ? DeviceRef(own_.set).exchange(how, ringbuf::kAcqRel) != 0
                              : DeviceRef(own_.set).compare_exchange_strong(unused, how, ringbuf::kAcqRel);
    if (told && accepts_ && how == kFailed) wake_others();
    if (set_ >= 0) net_.close_set(this_thread(), set_);
    if (!seated_) return;
    for (OneSeat& seat : own_.seats) {
      depart(seat, was_displaced(seat) ? Leave::displaced : Leave::ended);
      if (const std::uint64_t client = load(seat.client); client != 0) free_seat(seat, static_cast<Socket>(client - 1));
    }
  }

  /// What the group works with while it serves a client; each thread has the same.
  struct Talk {
    Reader<Group> reader;
    Writer<Group> writer;
    bool leaving, unfinished, shut;
    bool moved = false;  ///< a request was answered, or the client is told to leave
    std::uint64_t answered;
  };

  template <class Write>
  GPUSOCK_FN static void write_to(Writer<Group>& writer, const ClientState& state, Write& write) {
    if constexpr (requires { write(writer, state); }) {
      write(writer, state);
    } else {
      write(writer);
    }
  }

  /// Writes to a client that has not asked for it.
  template <class Write>
  GPUSOCK_FN_APART void tell(unsigned number, Write& write) {
    OneSeat& seat = own_.seats[number];
    const Socket client = client_of(seat);
    if (client < 0 || seat.leaving) return;
    Writer<Group> writer(group_, net_, client, seat.out, sizeof seat.out, 0);
    writer.resume(seat.writing);
    write_to(writer, seat.state, write);
    const int error = writer.flush(Deadline::now());
    const bool stays = error == 0 || error == -EAGAIN;
    const int events = writer.pending() != 0 ? kPollOut : kPollIn;
    const bool rewatch = stays && seat.watched != events;
    // Nothing waits for a client that has taken all, unless it has begun a request.
    const bool under_way = writer.pending() != 0 || seat.reading.taken != seat.answered;
    const std::uint64_t due_ns = !under_way         ? 0
                                 : seat.due_ns != 0 ? seat.due_ns
                                                    : later(clock_of_group(), limits_.request_timeout_ns);
    group_.sync();  // all have read the seat
    if (rewatch) net_.watch(group_, set_, client, events, number);
    if (due_ns != 0 && due_ns < next_due_ns_) next_due_ns_ = due_ns;
    by_leader(group_, [&]() -> std::int64_t {
      seat.writing = writer.progress();
      seat.watched = events;
      seat.due_ns = due_ns;
      if (!stays) leave(seat, client, why_not_sent(error));
      return 0;
    });
    if (!stays) freed_ = true;
  }

  /// The client in this seat, ready to be served; negative: the seat is free.
  GPUSOCK_FN_APART Socket client_of(OneSeat& seat) {
    return static_cast<Socket>(by_leader(group_, [&]() -> std::int64_t {
      const std::uint64_t word = DeviceRef(seat.client).load(ringbuf::kAcquire);  // pairs with admit()
      const auto client = static_cast<Socket>(word) - 1;
      if (word != 0 && (seat.served != client || !seat.present)) begin(seat, client);
      return client;
    }));
  }

  /// Handles an event of a client.
  GPUSOCK_FN_APART void serve(const PollEvent& event) {
    OneSeat& seat = own_.seats[event.tag];
    if (client_of(seat) != event.socket) return;  // it has left, or is not seated yet
    begin_owning(event.socket);
    Talk talk{{group_, clients_net_, event.socket, seat.in, sizeof seat.in},
              {group_, clients_net_, event.socket, seat.out, sizeof seat.out, 0},
              seat.leaving,
              seat.unfinished,
              seat.shut,
              false,
              seat.answered};
    talk.reader.resume(seat.reading);
    talk.writer.resume(seat.writing);
    const bool stays = converse(talk, seat, event.socket);
    const std::uint64_t now_ns = clock_of_group();
    const std::uint64_t due_ns = due_of(talk, seat, now_ns);
    const int events = talk.writer.pending() != 0 ? kPollOut : kPollIn;
    const bool rewatch = stays && seat.watched != events;
    group_.sync();  // all have read the seat
    if (rewatch) clients_net_.watch(group_, set_, event.socket, events, event.tag);
    if (due_ns != 0 && due_ns < next_due_ns_) next_due_ns_ = due_ns;
    by_leader(group_, [&]() -> std::int64_t {
      keep(talk, seat, due_ns, events);
      end_owning();
      if (!stays)
        leave(seat, event.socket, talk.leaving ? why_sent_away(talk.unfinished) : why_not_sent(talk.writer.error()));
      return 0;
    });
    if (!stays) freed_ = true;
  }

  /// Counts the group into a client for its turn, as OwnedSocket does; but no thread waits for the others. Not for
  /// longer: until an owner ends, a client that is displaced keeps its connection. If it has left, its calls say so.
  GPUSOCK_FN void begin_owning(Socket client) {
    const bool owned = group_.thread_rank() == 0 && enter_owner(NetAccess::side(net_), client) == 0;
    NetAccess::own(clients_net_, owned ? client : -1, holds_);
  }
  /// The leader alone.
  GPUSOCK_FN void end_owning() {
    if (NetAccess::side(clients_net_).owned >= 0) leave_owner(NetAccess::side(clients_net_));
  }

  /// -ETIMEDOUT: there was no room, and nothing waits for it.
  GPUSOCK_FN static Leave why_not_sent(int error) { return error == -ETIMEDOUT ? Leave::slow : Leave::failed; }
  GPUSOCK_FN static Leave why_sent_away(bool unfinished) { return unfinished ? Leave::unfinished : Leave::handled; }

  GPUSOCK_FN void begin(OneSeat& seat, Socket client) {
    depart(seat, Leave::displaced);
    seat.present = true;
    seat.served = client;
    seat.watched = kPollIn;
    seat.leaving = seat.unfinished = seat.shut = false;
    seat.due_ns = seat.answered = 0;
    seat.reading = {};
    seat.writing = {};
    seat.state = {};
  }

  GPUSOCK_FN void keep(const Talk& talk, OneSeat& seat, std::uint64_t due_ns, int events) {
    seat.reading = talk.reader.progress();
    seat.writing = talk.writer.progress();
    seat.leaving = talk.leaving;
    seat.unfinished = talk.unfinished;
    seat.shut = talk.shut;
    seat.answered = talk.answered;
    seat.due_ns = due_ns;
    seat.watched = events;
  }

  /// When the client's time is over: 0 where it may be idle.
  GPUSOCK_FN std::uint64_t due_of(const Talk& talk, const OneSeat& seat, std::uint64_t now_ns) const {
    const bool under_way = talk.leaving || talk.writer.pending() != 0 || talk.reader.progress().taken != talk.answered;
    if (!under_way) return 0;
    if (seat.due_ns != 0 && !talk.moved && talk.shut == seat.shut) return seat.due_ns;
    return later(now_ns, talk.shut ? limits_.farewell_ns : limits_.request_timeout_ns);
  }

  /// Takes the client's requests, as long as it takes the answers. False: close its connection.
  GPUSOCK_FN_APART bool converse(Talk& talk, OneSeat& seat, Socket socket) {
    bool waits = false;    // for more input
    bool refused = false;  // the handler has left input that was there, and asked for more
    for (int turn = 0;; ++turn) {
      if (const int error = talk.writer.flush(Deadline::now()); error != 0) return error == -EAGAIN;
      // After the last request of a turn, too: a client that is to leave has no event that would end its connection.
      if (talk.leaving) return farewell(talk, socket);
      if (waits || turn == kTurnsMax) return true;
      Client<ServerLoop> client{talk.reader, talk.writer, seat.state, socket, static_cast<unsigned>(&seat - own_.seats),
                                *this};
      const std::uint64_t taken = talk.reader.progress().taken;
      const int result = handler_(client);
      if (result == -EAGAIN) {
        waits = talk.reader.progress().taken != taken || !has_input(socket);
        if (waits) continue;
        // The set would report the socket at once, again and again. A second call: this may have come after the first.
        talk.leaving = talk.unfinished = refused;
        refused = true;
        continue;
      }
      refused = false;
      talk.answered = talk.reader.progress().taken;
      talk.moved = true;
      talk.leaving = result != 0;
      // Before the client has the answer: who knows of that is not taken for idle.
      if (group_.thread_rank() == 0) DeviceRef(seat.moved_ns).store(clock_ns(), ringbuf::kRelaxed);
    }
  }

  /// True if a call to read would not wait: also at the end of the stream, and after an error.
  GPUSOCK_FN_APART bool has_input(Socket socket) {
    const Span input = clients_net_.peek(group_, socket, 1, Deadline::now());
    if (input.size > 0) clients_net_.release(group_, socket, 0);
    return input.size != -EAGAIN;
  }

  /// After the last answer: the end of this side, then the client's, so that no unread input resets the connection.
  GPUSOCK_FN_APART bool farewell(Talk& talk, Socket socket) {
    if (!talk.shut && clients_net_.shutdown(group_, socket, Shutdown::write) != 0) return false;
    talk.shut = true;
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      const Span more = clients_net_.peek(group_, socket, kDrainBytes, Deadline::now());
      if (more.size <= 0) return more.size == -EAGAIN;
      clients_net_.release(group_, socket, static_cast<std::size_t>(more.size));
    }
    return true;
  }

  const Group& group_;
  const Net& net_;
  Net clients_net_;     ///< of the client whose turn it is: the group is counted into its socket once for all calls
  unsigned holds_ = 0;  ///< of it
  const Socket listener_;
  Memory* const all_;
  const unsigned count_;
  Memory& own_;
  const bool accepts_;
  const ServerLimits& limits_;
  Handler& handler_;
  Departed& departed_;
  PollSet set_ = -1;
  bool seated_ = false;                      // the seats are this group's
  std::uint64_t next_due_ns_ = kNever;       // no client's time is over before
  bool freed_ = false;                       // a seat may be free that was not
  bool closing_ = false;                     // the listener is closed: no client comes any more
  std::uint64_t awaited_until_ns_ = kNever;  // until when group 0 may begin
  // The accepting leader's.
  std::uint64_t room_due_ns_ = kNever;  // when the client that is idle longest makes room
  std::uint64_t began_ns_ = 0;
  std::uint64_t last_ = 0;  // the seat that was given last
  bool watches_listener_ = false;
};

}  // namespace detail

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
