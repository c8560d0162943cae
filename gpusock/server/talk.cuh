#pragma once
/// @file A client's turn in a server.

#include "gpusock/owned_socket.cuh"
#include "gpusock/server/limits.cuh"
#include "gpusock/server/shared_seats.cuh"

namespace gpusock {
namespace detail {

/// The state of a group while it serves a client, or writes to it. Each thread of the group has the same values.
template <class Group>
class Talk : ServerWords {
 public:
  Reader<Group> reader;
  Writer<Group> writer;
  bool leaving, unfinished, shut;
  bool moved = false;  ///< true once the handler has answered a request or sent the client away
  std::uint64_t answered;

  template <class OneSeat>
  GPUSOCK_FN Talk(const Group& group, const Net& net, Socket socket, OneSeat& seat)
      : reader(group, net, socket, seat.in, sizeof seat.in),
        writer(group, net, socket, seat.out, sizeof seat.out, 0),
        leaving(seat.leaving),
        unfinished(seat.unfinished),
        shut(seat.shut),
        answered(seat.answered),
        group_(group),
        net_(net),
        socket_(socket) {
    reader.resume(seat.reading);
    writer.resume(seat.writing);
  }

  /// The Net for calls on the client. It may be the one of the socket's owner (OwnedSocket).
  GPUSOCK_FN const Net& net() const { return net_; }

  template <class OneSeat>
  GPUSOCK_FN void keep(OneSeat& seat, std::uint64_t due_ns, int events) const {
    seat.reading = reader.progress();
    seat.writing = writer.progress();
    seat.leaving = leaving;
    seat.unfinished = unfinished;
    seat.shut = shut;
    seat.answered = answered;
    seat.due_ns = due_ns;
    seat.watched = events;
  }

  /// Returns when the client's time is over; 0 if the client may be idle.
  template <class OneSeat>
  GPUSOCK_FN std::uint64_t due_ns(const OneSeat& seat, const ServerLimits& limits, std::uint64_t now_ns) const {
    const bool under_way = leaving || writer.pending() != 0 || reader.progress().taken != answered;
    if (!under_way) return 0;
    if (seat.due_ns != 0 && !moved && shut == seat.shut) return seat.due_ns;
    return later(now_ns, shut ? limits.farewell_ns : limits.request_timeout_ns);
  }

  GPUSOCK_FN Leave why_closed() const { return leaving ? why_sent_away(unfinished) : why_not_sent(writer.error()); }
  /// As why_closed(), for a client whose turn is over.
  template <class OneSeat>
  GPUSOCK_FN static Leave why_closed(const OneSeat& seat) {
    if (seat.leaving) return why_sent_away(seat.unfinished);
    return seat.writing.error != 0 ? why_not_sent(seat.writing.error) : Leave::slow;
  }
  /// The Writer's timeout is 0, so -ETIMEDOUT means that its buffer and the tx ring had no room.
  GPUSOCK_FN static Leave why_not_sent(int error) { return error == -ETIMEDOUT ? Leave::slow : Leave::failed; }
  GPUSOCK_FN static Leave why_sent_away(bool unfinished) { return unfinished ? Leave::unfinished : Leave::handled; }

  /// True if a call to read would not wait: also at the end of the stream, and after an error.
  GPUSOCK_FN_APART bool has_input() const {
    const Span input = net_.peek(group_, socket_, 1, Deadline::now());
    if (input.size > 0) net_.release(group_, socket_, 0);
    return input.size != -EAGAIN;
  }

  /// After the last answer: ends this side, then reads to the client's end, so that no unread input resets the
  /// connection. Returns false if the connection is to be closed.
  GPUSOCK_FN_APART bool farewell() {
    if (!shut && net_.shutdown(group_, socket_, Shutdown::write) != 0) return false;
    shut = true;
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      const Span more = net_.peek(group_, socket_, kDrainBytes, Deadline::now());
      if (more.size <= 0) return more.size == -EAGAIN;
      net_.release(group_, socket_, static_cast<std::size_t>(more.size));
    }
    return true;
  }

 private:
  static constexpr std::size_t kDrainBytes = 64 << 10;

  const Group& group_;
  const Net& net_;
  const Socket socket_;
};

}  // namespace detail
}  // namespace gpusock
