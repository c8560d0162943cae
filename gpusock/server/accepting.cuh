#pragma once
/// @file How group 0 of a server gives seats to new clients.

#include "gpusock/server/limits.cuh"
#include "gpusock/server/shared_seats.cuh"

namespace gpusock {
namespace detail {

/// Gives seats of all groups to the clients that connect to the listener. Only the leader of group 0 uses it.
template <class Memory, class Departed>
class Accepting : ServerWords {
 public:
  using Shared = SharedSeats<Memory, Departed>;

  GPUSOCK_FN Accepting(const Net& net, Socket listener, const ServerLimits& limits, Shared& seats)
      : net_(net), listener_(listener), limits_(limits), seats_(seats) {}

  /// Watches the listener in the group's set.
  GPUSOCK_FN int begin(PollSet set) {
    set_ = set;
    began_ns_ = clock_ns();
    return watch_listener(true);
  }

  /// Returns when to look for a seat again (Plan::due_ns of the last look); kNever if no time is known.
  GPUSOCK_FN std::uint64_t room_due_ns() const { return room_due_ns_; }

  /// Gives seats to the clients that wait. Returns kClosing if the listener is closed, after telling the other groups.
  GPUSOCK_FN_APART int accept_clients() {
    room_due_ns_ = kNever;
    const int error = accept_waiting();
    if (error != -EBADF) return error;
    room_due_ns_ = kNever;
    seats_.tell_closed();
    return kClosing;
  }

 private:
  using OneSeat = typename Shared::OneSeat;

  struct Plan {
    std::uint64_t seat = kNever;    ///< its group is seat % groups; kNever: no seat is free before due_ns
    std::uint64_t due_ns = kNever;  ///< when the longest idle client makes room, and no group is awaited any more
  };

  /// Finds a seat. The search begins after the seat that was given last, so that all groups have their share.
  GPUSOCK_FN_APART Plan find_seat() {
    Plan plan;
    std::uint64_t oldest_ns = kNever;
    bool all_began = true;
    const std::uint64_t seats = std::uint64_t{seats_.groups()} * Memory::kCount;
    for (std::uint64_t i = 1; i <= seats; ++i) {
      const std::uint64_t seat = (last_ + i) % seats;
      const std::uint64_t set = seats_.set_word_of(seat);
      if (set == 0) all_began = false;
      if (!is_open(set)) continue;
      if (load(seats_.seat_of(seat).client) == 0) return {seat, 0};
      const std::uint64_t moved_ns = load(seats_.seat_of(seat).moved_ns);
      if (moved_ns >= oldest_ns) continue;
      oldest_ns = moved_ns;
      plan = {seat, later(moved_ns, limits_.displace_after_ns)};
    }
    // The seats of a group that has not begun are free. It will wake this group when it begins, but may never begin.
    const std::uint64_t awaited_ns = later(began_ns_, limits_.group_start_ns);
    if (!all_began && plan.due_ns < awaited_ns) plan.due_ns = awaited_ns;
    if (plan.due_ns == kNever || clock_ns() < plan.due_ns) plan.seat = kNever;
    return plan;
  }

  /// Watches the listener for clients and its end, or (`watch` false) for its end only. Returns -EBADF if it is closed.
  GPUSOCK_FN int watch_listener(bool watch) {
    if (watch == watches_listener_) {
      std::int64_t ignored = 0;
      return net_.getsockopt(this_thread(), listener_, SocketOption::no_delay, ignored);
    }
    watches_listener_ = watch;
    return net_.watch(this_thread(), set_, listener_, watch ? kPollIn | kPollNval : kPollNval);
  }

  /// Accepts clients as long as there are seats for them. The others go on waiting in the listener's backlog.
  GPUSOCK_FN_APART int accept_waiting() {
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      const Plan plan = find_seat();
      if (plan.seat == kNever) {
        room_due_ns_ = plan.due_ns;
        return watch_listener(false);
      }
      // accept() returns no error that concerns one client, or a shortage: a client waits in the listener's backlog
      // until the context has a socket and rings for it.
      const Socket client = net_.accept(this_thread(), listener_, Deadline::now());
      if (client == -EAGAIN) break;
      if (client < 0) return client;
      last_ = plan.seat;
      admit(client);
    }
    return watch_listener(true);
  }

  GPUSOCK_FN_APART void admit(Socket client) {
    OneSeat& seat = seats_.seat_of(last_);
    // This call cannot fail: begin_serving() has checked the value, and no other group has the socket yet.
    net_.setsockopt(this_thread(), client, SocketOption::idle_timeout_ns, idle_option_ns(limits_));
    const PollSet set = seats_.open_set_of(last_ % seats_.groups());
    // This comes before the client is in the seat: once the other group finds it there, that group may watch it for
    // other events.
    if (set < 0 || net_.watch(this_thread(), set, client, kPollIn, last_ / seats_.groups()) != 0) {
      net_.close(this_thread(), client);  // that group has ended: no other error is possible for a new socket
      return;
    }
    DeviceRef(seat.moved_ns).store(clock_ns(), ringbuf::kRelaxed);
    const std::uint64_t before =
        DeviceRef(seat.client).exchange(static_cast<std::uint64_t>(client) + 1, ringbuf::kAcqRel);
    if (before != 0) displace(seat, static_cast<Socket>(before - 1), set);
    if (seats_.open_set_of(last_ % seats_.groups()) < 0) seats_.free_seat(seat, client);
  }

  /// Closes a client that has lost its seat. The seat's group calls `departed`.
  GPUSOCK_FN void displace(OneSeat& seat, Socket client, PollSet set) {
    net_.close(this_thread(), client);
    if (last_ % seats_.groups() != 0) {
      net_.wake(this_thread(), set);
    } else {
      seats_.depart(seat, Leave::displaced);
    }
  }

  const Net& net_;
  const Socket listener_;
  const ServerLimits& limits_;
  Shared& seats_;
  PollSet set_ = -1;
  std::uint64_t room_due_ns_ = kNever;
  std::uint64_t began_ns_ = 0;
  std::uint64_t last_ = 0;  // the seat that was given last
  bool watches_listener_ = false;
};

}  // namespace detail
}  // namespace gpusock
