#pragma once
/// @file The loop of one group of a server.

#include "gpusock/server/accepting.cuh"
#include "gpusock/server/client.cuh"
#include "gpusock/server/talk.cuh"

namespace gpusock {
namespace detail {

/// Runs serve() in one group.
template <class Group, class Memory, class Handler, class Departed>
class ServerLoop : ServerWords {
 public:
  using GroupType = Group;
  using ClientState = typename Memory::ClientState;

  GPUSOCK_FN ServerLoop(const Group& group, const Net& net, Socket listener, Memory* all, unsigned count, unsigned own,
                        const ServerLimits& limits, Handler& handler, Departed& departed)
      : group_(group),
        net_(net),
        clients_net_(net),
        listener_(listener),
        seats_(net, all, count, own, departed),
        accepting_(net, listener, limits, seats_),
        limits_(limits),
        handler_(handler) {}

  GPUSOCK_FN int run() {
    set_ = net_.open_set(group_);
    auto error = set_ < 0 ? set_
                          : static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return begin_serving(); }));
    if (!seats_.accepts()) awaited_until_ns_ = later(clock_of_group(), limits_.group_start_ns);
    while (error == 0) error = turn();
    by_leader(group_, [&]() -> std::int64_t {
      end(error);
      return 0;
    });
    return error == -ECANCELED || error == kDone ? 0 : error;
  }

  /// Implements Client::tell_all(). Meanwhile other groups may write to `teller`, too, so the progress of its Writer
  /// is kept in its seat until the end.
  template <class Write>
  GPUSOCK_FN_APART void tell_all(Client<ServerLoop>& teller, Write& write) {
    OneSeat& seat = seats_.own().seats[teller.seat];
    group_.sync();  // all threads have read seat.writing: a handler may tell before it reads
    if (group_.thread_rank() == 0) {
      seat.writing = teller.writer.progress();
      seat.talking = true;
    }
    for (unsigned group = 0; group < seats_.groups(); ++group) {
      const PollSet set = hold(group);
      for (unsigned i = 0; set >= 0 && i < Memory::kCount; ++i) tell({group, set, i}, write);
    }
    hold(seats_.number());
    teller.writer.resume(seat.writing);
    group_.sync();  // all threads have read seat.writing
    if (group_.thread_rank() == 0) seat.talking = false;
  }

 private:
  using Shared = SharedSeats<Memory, Departed>;
  using OneSeat = typename Shared::OneSeat;
  using OneTalk = Talk<Group>;

  /// Names one seat of a server.
  struct SeatId {
    unsigned group;
    PollSet set;  ///< the group's poll set
    unsigned number;
  };

  GPUSOCK_FN static Deadline deadline_at(std::uint64_t at_ns) {
    const std::uint64_t now_ns = clock_ns();
    return at_ns == kNever ? Deadline::never() : at_ns <= now_ns ? Deadline::now() : Deadline::after_ns(at_ns - now_ns);
  }

  /// Returns the time of the leader's clock to all threads of the group.
  GPUSOCK_FN std::uint64_t clock_of_group() const {
    return static_cast<std::uint64_t>(by_leader(group_, [] { return static_cast<std::int64_t>(clock_ns()); }));
  }

  /// Takes the group's seats. Then group 0 begins to accept; any other group tells group 0 that there are more seats.
  GPUSOCK_FN_APART int begin_serving() {
    if (idle_option_ns(limits_) == 0) return -EINVAL;
    Endpoint at;
    Endpoint peer;
    if (net_.getpeername(listener_, peer) == 0) return -EBADF;  // it is connected
    if (net_.getsockname(listener_, at) == 0 && at.type == SocketType::seqpacket) return -EPROTOTYPE;
    if (const int error = seats_.take(set_); error != 0) return error;
    return seats_.accepts() ? accepting_.begin(set_) : seats_.join();
  }

  /// Waits once, and handles the events.
  GPUSOCK_FN_APART int turn() {
    const std::uint64_t own_due_ns = seats_.accepts() ? room_due_ns_ : awaited_until_ns_;
    const std::uint64_t until_ns = own_due_ns < next_due_ns_ ? own_due_ns : next_due_ns_;
    const int count = net_.wait(group_, set_, seats_.own().events, Memory::kEventsMax, deadline_at(until_ns));
    if (count < 0) return count;
    if (seats_.groups() == 1) return handle(count);
    hold(seats_.number());
    const int error = handle(count);
    group_.sync();  // all threads have finished with the seats
    if (group_.thread_rank() == 0) seats_.let_go();
    return error;
  }

  /// Handles `count` events, and all work that is due by now.
  GPUSOCK_FN_APART int handle(int count) {
    bool look = false, woken = false;
    now_ns_ = 0;
    for (int i = 0; i < count; ++i) {
      const PollEvent event = seats_.own().events[i];
      if (event.socket < 0 || event.socket == listener_) {
        look = true;  // a client has come, the listener was closed, or another group woke this one
        woken = woken || event.socket < 0;
      } else {
        if (i != 0 && seats_.groups() != 1) give_way();
        serve(event);
      }
    }
    const bool told = woken && seats_.groups() != 1;  // another group may have set a due time: sweep() finds it
    const std::uint64_t now_ns = now_ns_ != 0 ? now_ns_ : clock_of_group();
    if (told || now_ns >= next_due_ns_) sweep(now_ns);
    if (look) notice_displaced();
    if (!closing_) {
      const int error = seats_.accepts() ? accept_in_turn(look, now_ns) : await_in_turn(look, now_ns);
      if (error != kClosing) return error;
      closing_ = true;
      awaited_until_ns_ = kNever;
    }
    return static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return has_clients() ? 0 : kDone; }));
  }

  GPUSOCK_FN int accept_in_turn(bool look, std::uint64_t now_ns) {
    if (!look && !freed_ && now_ns < room_due_ns_) return 0;
    freed_ = false;
    const auto error = static_cast<int>(
        by_leader(group_, [&]() -> std::int64_t { return accepting_.accept_clients(); }));
    room_due_ns_ = static_cast<std::uint64_t>(
        by_leader(group_, [&] { return static_cast<std::int64_t>(accepting_.room_due_ns()); }));
    return error;
  }

  GPUSOCK_FN int await_in_turn(bool look, std::uint64_t now_ns) {
    const bool in_time = now_ns < awaited_until_ns_;
    if (!in_time) awaited_until_ns_ = kNever;
    if (!look && in_time) return 0;
    return static_cast<int>(by_leader(group_, [&]() -> std::int64_t { return seats_.look_at_accepting(in_time); }));
  }

  GPUSOCK_FN bool has_clients() {
    for (OneSeat& seat : seats_.own().seats) {
      if (load(seat.client) != 0) return true;
    }
    return false;
  }

  GPUSOCK_FN void leave(OneSeat& seat, Socket client, Leave why) {
    // A call on the client's socket also fails if the context has ended, or group 0 has displaced the client. Then that
    // is the reason, not `why`.
    const bool ended = canceled(NetAccess::side(net_));
    seats_.depart(seat, ended ? Leave::ended : seats_.was_displaced(seat) ? Leave::displaced : why);
    seats_.free_seat(seat, client);
  }

  /// Calls `departed` for the clients that group 0 has displaced from this group's seats. Group 0 wakes this group for
  /// that, because the new client may send nothing.
  GPUSOCK_FN_APART void notice_displaced() {
    by_leader(group_, [&]() -> std::int64_t {
      for (OneSeat& seat : seats_.own().seats) {
        if (seats_.was_displaced(seat)) seats_.depart(seat, Leave::displaced);
      }
      return 0;
    });
  }

  /// Closes the connections of clients whose time is over, and finds when the next client is due.
  GPUSOCK_FN_APART void sweep(std::uint64_t now_ns) {
    freed_ = true;
    next_due_ns_ = static_cast<std::uint64_t>(by_leader(group_, [&]() -> std::int64_t {
      std::uint64_t next_ns = kNever;
      for (OneSeat& seat : seats_.own().seats) {
        if (seat.due_ns == 0 || load(seat.client) != static_cast<std::uint64_t>(seat.served) + 1) continue;
        if (seat.due_ns <= now_ns) {
          leave(seat, seat.served, OneTalk::why_closed(seat));
        } else if (seat.due_ns < next_ns) {
          next_ns = seat.due_ns;
        }
      }
      return static_cast<std::int64_t>(next_ns);
    }));
  }

  GPUSOCK_FN_APART void end(int error) {
    if (seats_.taken()) seats_.stop_serving();
    seats_.tell_end(error == -ECANCELED ? kEnded : error == kDone ? kClosed : kFailed);
    if (set_ >= 0) net_.close_set(this_thread(), set_);
    if (!seats_.taken()) return;
    for (OneSeat& seat : seats_.own().seats) {
      seats_.depart(seat, seats_.was_displaced(seat) ? Leave::displaced : Leave::ended);
      if (const std::uint64_t client = load(seat.client); client != 0)
        seats_.free_seat(seat, static_cast<Socket>(client - 1));
    }
  }

  template <class Write>
  GPUSOCK_FN static void write_to(Writer<Group>& writer, const ClientState& state, Write& write) {
    if constexpr (requires { write(writer, state); }) {
      write(writer, state);
    } else {
      write(writer);
    }
  }

  GPUSOCK_FN SeatId own_seat(unsigned number) const { return {seats_.number(), set_, number}; }
  GPUSOCK_FN OneSeat& seat_at(const SeatId& id) const { return seats_.of(id.group).seats[id.number]; }

  /// Waits until this group alone uses the seats of `group`, as SharedSeats::hold(). Returns that group's poll set, or
  /// -1 if the group does not serve.
  GPUSOCK_FN PollSet hold(unsigned group) {
    // All threads have finished with the seats that the leader gives back.
    return static_cast<PollSet>(value_by_leader_after_all(group_, [&]() -> std::int64_t {
      seats_.hold(group);
      return seats_.serving_set_of(group);
    }));
  }
  /// Lets other groups use this group's seats, if they wait for them.
  GPUSOCK_FN void give_way() {
    value_by_leader_after_all(group_, [&]() -> std::int64_t {  // as in hold()
      seats_.give_way();
      return 0;
    });
  }

  /// Writes the message of a Client::tell_all() call to one client.
  template <class Write>
  GPUSOCK_FN_APART void tell(const SeatId& id, Write& write) {
    OneSeat& seat = seat_at(id);
    if (seat.talking) return add(seat, write);
    const Socket client = client_of(seat, id.group == seats_.number());
    if (client < 0 || seat.leaving) return;
    OneTalk talk(group_, net_, client, seat);
    write_to(talk.writer, seat.state, write);
    const int error = talk.writer.flush(Deadline::now());
    end_turn(talk, id, client, error == 0 || error == -EAGAIN, [] {});
  }

  /// Adds the message to the Writer of a client whose own handler is in tell_all(). That client's turn sends it later.
  template <class Write>
  GPUSOCK_FN_APART void add(OneSeat& seat, Write& write) {
    Writer<Group> writer(group_, net_, seat.served, seat.out, sizeof seat.out, 0);
    writer.resume(seat.writing);
    write_to(writer, seat.state, write);
    group_.sync();  // all threads have read seat.writing
    if (group_.thread_rank() == 0) seat.writing = writer.progress();
  }

  /// Returns the client in this seat, and prepares the seat for a new client. Returns a negative number if the seat is
  /// free, or if it belongs to another group that has not called `departed` yet for the client that was displaced from
  /// it.
  GPUSOCK_FN_APART Socket client_of(OneSeat& seat, bool own = true) {
    return static_cast<Socket>(by_leader(group_, [&]() -> std::int64_t {
      const std::uint64_t word = DeviceRef(seat.client).load(ringbuf::kAcquire);  // pairs with admit()
      const auto client = static_cast<Socket>(word) - 1;
      if (word == 0 || (seat.served == client && seat.present)) return client;
      if (seat.present && !own) return -1;
      begin(seat, client);
      return client;
    }));
  }

  /// Handles an event of a client.
  GPUSOCK_FN_APART void serve(const PollEvent& event) {
    OneSeat& seat = seats_.own().seats[event.tag];
    if (client_of(seat) != event.socket) return;  // the client has left, or is not in its seat yet
    begin_owning(event.socket);
    OneTalk talk(group_, clients_net_, event.socket, seat);
    const bool stays = converse(talk, seat, event.socket);
    end_turn(talk, own_seat(static_cast<unsigned>(event.tag)), event.socket, stays, [this] { end_owning(); });
  }

  /// Ends a client's turn, or a write to it. Stores in the seat the client's progress, the events that it is watched
  /// for, and when it is due. Then the leader calls `ending()`, and the client leaves if `stays` is false. A client of
  /// another group is due at once instead: this group wakes that one, which closes the client and calls its `departed`.
  template <class Ending>
  GPUSOCK_FN_APART void end_turn(const OneTalk& talk, const SeatId& id, Socket client, bool stays, Ending ending) {
    const bool own = id.group == seats_.number();
    struct Times {
      std::uint64_t now_ns, due_ns;
    };
    // All threads have finished with the seat.
    const Times times = value_by_leader_after_all(group_, [&] {
      OneSeat& seat = seat_at(id);
      const std::uint64_t now_ns = clock_ns();
      const std::uint64_t due_ns = stays || own ? talk.due_ns(seat, limits_, now_ns) : kPast;
      const int events = talk.writer.pending() != 0 ? kPollOut : kPollIn;
      const bool sooner = due_ns != 0 && (seat.due_ns == 0 || due_ns < seat.due_ns);
      if (stays && seat.watched != events) talk.net().watch(this_thread(), id.set, client, events, id.number);
      talk.keep(seat, due_ns, events);
      ending();
      if (!own && sooner) net_.wake(this_thread(), id.set);
      if (own && !stays) leave(seat, client, talk.why_closed());
      return Times{now_ns, due_ns};
    });
    now_ns_ = times.now_ns;
    if (own && times.due_ns != 0 && times.due_ns < next_due_ns_) next_due_ns_ = times.due_ns;
    if (own && !stays) freed_ = true;
  }

  /// Counts the group into a client's socket for one turn of the client, as OwnedSocket does, but without a barrier.
  /// The ownership ends with the turn, because a displaced client keeps its connection until its owner ends. If the
  /// client has left, the calls on its socket return the error.
  GPUSOCK_FN void begin_owning(Socket client) {
    const bool owned = group_.thread_rank() == 0 && enter_owner(NetAccess::side(net_), client) == 0;
    NetAccess::own(clients_net_, owned ? client : -1, holds_);
  }

  /// Ends what begin_owning() began. Only the leader calls it.
  GPUSOCK_FN void end_owning() {
    if (NetAccess::side(clients_net_).owned >= 0) leave_owner(NetAccess::side(clients_net_));
  }

  GPUSOCK_FN void begin(OneSeat& seat, Socket client) {
    seats_.depart(seat, Leave::displaced);
    seat.present = true;
    seat.served = client;
    seat.watched = kPollIn;
    seat.leaving = seat.unfinished = seat.shut = false;
    seat.due_ns = seat.answered = 0;
    seat.reading = {};
    seat.writing = {};
    seat.state = {};
  }

  /// Handles the client's requests as long as the client takes the answers. Returns false if its connection is to be
  /// closed.
  GPUSOCK_FN_APART bool converse(OneTalk& talk, OneSeat& seat, Socket socket) {
    bool waits = false;    // the handler waits for more input
    bool refused = false;  // the handler has asked for more input, and taken none of what was there
    for (int turn = 0;; ++turn) {
      const bool meets = talk.writer.pending() != 0;
      if (const int error = talk.writer.flush(Deadline::now()); error != 0) return error == -EAGAIN;
      // This check also follows the last request of a turn: a client that is to leave has no event that would end its
      // connection.
      if (talk.leaving) return talk.farewell();
      if (waits || turn == kTurnsMax) return true;
      Client<ServerLoop> client{
          talk.reader, talk.writer, seat.state, socket, static_cast<unsigned>(&seat - seats_.own().seats), *this};
      const std::uint64_t taken = talk.reader.progress().taken;
      if (turn != 0 && !meets) group_.sync();  // all threads have returned from the handler
      const int result = handler_(client);
      if (result == -EAGAIN) {
        waits = talk.reader.progress().taken != taken || !talk.has_input();
        if (waits) continue;
        // The set would report the socket at once, again and again. The handler gets one more call before the client
        // is sent away: the input may have come after the first call.
        talk.leaving = talk.unfinished = refused;
        refused = true;
        continue;
      }
      refused = false;
      talk.answered = talk.reader.progress().taken;
      talk.moved = true;
      talk.leaving = result != 0;
      // The time is stored before the client gets the answer, so that a client that has it does not count as idle.
      if (group_.thread_rank() == 0) DeviceRef(seat.moved_ns).store(clock_ns(), ringbuf::kRelaxed);
    }
  }

  static constexpr std::uint64_t kPast = 1;  // a time that is over

  const Group& group_;
  const Net& net_;
  Net clients_net_;     ///< for the client whose turn it is: its socket counts the group once for all calls
  unsigned holds_ = 0;  ///< the reservation and peek that are open on that socket
  const Socket listener_;
  Shared seats_;
  Accepting<Memory, Departed> accepting_;
  const ServerLimits& limits_;
  Handler& handler_;
  PollSet set_ = -1;
  std::uint64_t now_ns_ = 0;                 // the time when the last client's turn ended; 0: no client had one
  std::uint64_t next_due_ns_ = kNever;       // no client is due before this time
  bool freed_ = false;                       // a seat may have become free
  bool closing_ = false;                     // the listener is closed: no client comes any more
  std::uint64_t awaited_until_ns_ = kNever;  // group 0 must begin before this time
  std::uint64_t room_due_ns_ = kNever;       // Accepting::room_due_ns()
};

}  // namespace detail
}  // namespace gpusock
