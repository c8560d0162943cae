#pragma once
/// @file Messages between ranks: connect_all() connects a rank with all other ranks; exchange() sends a message and
/// receives one at the same time.

#include "gpusock/greetings.cuh"
#include "gpusock/io.cuh"

namespace gpusock {

namespace detail {

/// The progress of one direction of an exchange. A message begins with its length: 4 bytes on a stream, 8 bytes with
/// records.
struct HalfOfExchange {
  std::uint64_t done = 0;  ///< bytes of the length and the message that were moved so far
  std::uint64_t all = 0;   ///< bytes of the length and the message together, as far as known
  GPUSOCK_FN bool is_done() const { return done == all; }
};

inline constexpr std::uint64_t kRecordsHeadBytes = 8;  ///< the length of a message in records

/// Appends these bytes to the part of a length that has been read so far, and returns the new length. Only the leader
/// reads them: a peer may be able to change the ring's bytes, and all threads must get the same length. The caller
/// needs a barrier before its next broadcast().
template <class Group>
GPUSOCK_FN std::uint64_t read_length(const Group& group, std::uint64_t length, const void* from, std::uint64_t bytes) {
  for (std::uint64_t i = 0; group.thread_rank() == 0 && i < bytes; ++i)
    length = length << 8 | static_cast<const unsigned char*>(from)[i];
  return broadcast(group, length);
}

/// Sends as much of a message, with its length in front, as the socket takes at once. Returns 0, or an error.
template <class Group>
GPUSOCK_FN_APART std::int64_t send_part(const Group& group, const Net& net, Socket socket, const void* data,
                                        HalfOfExchange& half) {
  constexpr std::uint64_t kHead = Reader<Group>::kLengthBytes;
  while (half.done < kHead) {
    const Span room = net.reserve(group, socket, kHead - half.done, Deadline::now());
    if (room.size < 0) return room.size;
    const auto length = static_cast<std::uint32_t>(half.all - kHead);
    for (auto i = static_cast<std::int64_t>(group.thread_rank()); i < room.size; i += group.num_threads()) {
      const auto shift = 8 * (kHead - 1 - half.done - static_cast<std::uint64_t>(i));
      static_cast<unsigned char*>(room.data)[i] = static_cast<unsigned char>(length >> shift);
    }
    if (const int error = net.commit(group, socket, static_cast<std::size_t>(room.size)); error != 0) return error;
    half.done += static_cast<std::uint64_t>(room.size);
  }
  if (half.is_done()) return 0;
  const std::uint64_t at = half.done - kHead;
  const std::int64_t sent = net.send(group, socket, static_cast<const char*>(data) + at, half.all - half.done,
                                     kDontWait);
  if (sent > 0) half.done += static_cast<std::uint64_t>(sent);
  return sent < 0 ? sent : 0;
}

/// Receives the part of a message that has arrived: its length into `length`, its bytes into `data`. Returns 0, or an
/// error.
template <class Group>
GPUSOCK_FN_APART std::int64_t receive_part(const Group& group, const Net& net, Socket socket, void* data,
                                           std::size_t room, HalfOfExchange& half, std::uint64_t& length) {
  constexpr std::uint64_t kHead = Reader<Group>::kLengthBytes;
  while (half.done < kHead) {
    const Span head = net.peek(group, socket, kHead - half.done, Deadline::now());
    if (head.size == 0) return half.done == 0 ? -EPIPE : -EPROTO;
    if (head.size < 0) return head.size;
    length = read_length(group, length, head.data, static_cast<std::uint64_t>(head.size));
    if (const int error = net.release(group, socket, static_cast<std::size_t>(head.size)); error != 0) return error;
    half.done += static_cast<std::uint64_t>(head.size);
    half.all = kHead + length;
  }
  if (length > room) return -EMSGSIZE;
  if (half.is_done()) return 0;
  const std::int64_t got = net.recv(group, socket, static_cast<char*>(data) + (half.done - kHead), half.all - half.done,
                                    kDontWait);
  if (got > 0) half.done += static_cast<std::uint64_t>(got);
  return got == 0 ? -EPROTO : got < 0 ? got : 0;
}

/// Sends the next record of a message if there is room for it. Returns 0, or an error.
template <class Group>
GPUSOCK_FN_APART std::int64_t send_record_of(const Group& group, const Net& net, Socket socket, const void* data,
                                             std::uint64_t record_bytes_max, HalfOfExchange& half) {
  constexpr std::uint64_t kHead = kRecordsHeadBytes;
  const std::uint64_t left = half.all - half.done;
  const std::uint64_t bytes = left < record_bytes_max ? left : record_bytes_max;
  const std::uint64_t head = half.done == 0 ? kHead : 0;
  const Span room = net.reserve(group, socket, bytes, Deadline::now());
  if (room.size < 0) return room.size;
  auto* const to = static_cast<unsigned char*>(room.data);
  for (std::uint64_t i = group.thread_rank(); i < head; i += group.num_threads())
    to[i] = static_cast<unsigned char>((half.all - kHead) >> 8 * (kHead - 1 - i));
  if (bytes > head) copy(group, to + head, static_cast<const char*>(data) + (half.done + head - kHead), bytes - head);
  half.done += bytes;
  return net.commit(group, socket, bytes);
}

/// Receives the next record of a message if it has arrived. Returns 0, or an error.
template <class Group>
GPUSOCK_FN_APART std::int64_t receive_record_of(const Group& group, const Net& net, Socket socket, void* data,
                                                std::size_t room, HalfOfExchange& half, std::uint64_t& length) {
  constexpr std::uint64_t kHead = kRecordsHeadBytes;
  constexpr std::size_t kAnyBytes = 0xffffffffu;
  const Span record = net.peek(group, socket, kAnyBytes, Deadline::now());
  if (record.size == 0) return half.done == 0 ? -EPIPE : -EPROTO;
  if (record.size < 0) return record.size;
  const auto bytes = static_cast<std::uint64_t>(record.size);
  const auto* const from = static_cast<const unsigned char*>(record.data);
  const std::uint64_t head = half.done == 0 ? kHead : 0;
  int error = bytes < head ? -EPROTO : 0;
  if (error == 0 && head != 0) length = read_length(group, length, from, head);
  if (error == 0 && length > room) error = -EMSGSIZE;
  if (error == 0) half.all = kHead + length;
  if (error == 0 && bytes > half.all - half.done) error = -EPROTO;
  if (error == 0 && bytes > head)
    copy(group, static_cast<char*>(data) + (half.done + head - kHead), from + head, bytes - head);
  half.done += bytes;
  const int released = net.release(group, socket, bytes);
  return error != 0 ? error : released;
}

}  // namespace detail

/// Sends a message to the peer and receives one from it, both at the same time. The peer makes the same call. Neither
/// side waits for the other to receive first, whatever the sizes of the messages are. Returns the number of bytes
/// received.
///
/// On a stream the message is sent as by Writer::message(). With records (type=seqpacket) it is sent in as many records
/// as it needs: its length in 8 bytes (network byte order), then its bytes, at most an eighth of the ring in a
/// record. `out` and `in`: memory that all threads of the group can use; `in` has `room` bytes. After an error the
/// connection cannot be used for messages any more: a part may have been sent.
///
/// Deadline::by_default() lasts as long as the socket's timeouts: the shorter one of receive_timeout_ns and
/// send_timeout_ns while the call waits for both directions. The time starts again whenever bytes have moved.
///
/// Errors: those of Net::send() and Net::recv() except -EAGAIN: with Deadline::now(), a call that would have to wait
/// returns -ETIMEDOUT, because it cannot be repeated; -EMSGSIZE (the peer's message is longer than `room`; on a stream,
/// also if `bytes` exceeds 4 GiB), -EPIPE (the peer has ended its direction), -EPROTO (the peer ended it within a
/// message, or sent something that is not a message).
template <class Group>
GPUSOCK_FN_APART std::int64_t exchange(const Group& group, const Net& net, Socket socket, const void* out,
                                       std::size_t bytes, void* in, std::size_t room,
                                       Deadline deadline = Deadline::by_default()) {
  GPUSOCK_GROUP_CALL(group);
  const bool records = table::carries_records(socket);
  if (!records && bytes > 0xffffffffu) return -EMSGSIZE;
  std::int64_t ring_bytes = 0;
  if (const int error = records ? net.getsockopt(group, socket, SocketOption::send_buffer, ring_bytes) : 0; error != 0)
    return error;
  const std::uint64_t head = records ? detail::kRecordsHeadBytes : Reader<Group>::kLengthBytes;
  const std::uint64_t record_bytes_max = static_cast<std::uint64_t>(ring_bytes) / 8;  // kPollOut: room for this size
  const Deadline given = deadline.here();
  Deadline until = given;
  bool moved = true;  // bytes have moved since `until` began
  detail::HalfOfExchange sending{0, head + bytes}, receiving{0, head};
  std::uint64_t length = 0;
  while (!sending.is_done() || !receiving.is_done()) {
    const std::uint64_t before = sending.done + receiving.done;
    std::int64_t error = 0;
    if (!sending.is_done()) {
      error = records ? detail::send_record_of(group, net, socket, out, record_bytes_max, sending)
                      : detail::send_part(group, net, socket, out, sending);
      if (error < 0 && error != -EAGAIN) return error;
    }
    if (!receiving.is_done()) {
      error = records ? detail::receive_record_of(group, net, socket, in, room, receiving, length)
                      : detail::receive_part(group, net, socket, in, room, receiving, length);
      // Otherwise the next call would read the rest of this message as new messages.
      if (error == -EMSGSIZE) net.shutdown(group, socket, Shutdown::read);
      if (error < 0 && error != -EAGAIN) return error;
    }
    if (sending.done + receiving.done != before) {
      moved = true;
      continue;
    }
    const int events = (sending.is_done() ? 0 : kPollOut) | (receiving.is_done() ? 0 : kPollIn);
    if (moved) until = detail::begun(group, net, socket, events, given);
    moved = false;
    PollEntry entry{socket, static_cast<std::int16_t>(events), 0};  // poll uses the leader's entry
    const int ready = net.poll(group, &entry, 1, until);
    if (ready < 0) return ready;
    if (ready == 0) return -ETIMEDOUT;
  }
  return static_cast<std::int64_t>(length);
}

namespace detail {

/// Connects to a rank as soon as it listens, and sends it this rank's number.
GPUSOCK_FN_APART inline Socket call_rank(const Net& net, const Endpoint& peer, std::uint32_t own, Deadline until) {
  const auto me = this_thread();
  Socket socket = -1;
  while ((socket = net.connect(me, peer, until)) == -ECONNREFUSED && !until.passed()) {
    const Deadline soon = Deadline::after_ns(10'000'000);
    net.poll(me, nullptr, 0, soon);  // the rank does not listen yet: wait, then try again
  }
  if (socket < 0) return socket;
  const std::int64_t sent = net.send(me, socket, &own, sizeof own, kWaitAll, until);
  if (sent >= 0) return socket;
  net.close(me, socket);
  return static_cast<Socket>(sent);
}

}  // namespace detail

/// Connects this rank with all other ranks. It connects to the ranks below it as soon as they listen, and accepts the
/// ranks above it. One thread calls it. Returns 0 once this rank is connected with all others. By then the ranks above
/// it have called connect_all(); the ranks below it listen, and may call it later.
///
/// `peers`: the endpoints at which the `ranks` ranks listen; all ranks pass the same. `listener`: this rank's listener,
/// with the same link and type. Writes a socket for each rank to `sockets`, or a negated errno that says why there is
/// none; -1 for this rank itself. A connection that sends no rank's number within 2 s is closed; other connections do
/// not wait for it (Greetings). After an error the caller must close the sockets that were opened.
/// Deadline::by_default() is the listener's receive_timeout_ns, for all ranks together.
///
/// Errors: the first error that Net::connect(), Net::accept() or Net::send() gave; -ETIMEDOUT (a rank has not
/// connected).
GPUSOCK_FN_APART inline int connect_all(const Net& net, Socket listener, const Endpoint* peers, std::uint32_t own,
                                        std::uint32_t ranks, Socket* sockets, Deadline deadline) {
  constexpr std::uint64_t kGreetingNs = 2'000'000'000;  // how long a connection may take to send its rank
  const auto me = this_thread();
  const Deadline until = detail::begun(me, net, listener, kPollIn, deadline);
  int error = 0;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) sockets[peer] = peer == own ? -1 : -ETIMEDOUT;
  for (std::uint32_t peer = 0; peer < own; ++peer) {
    sockets[peer] = detail::call_rank(net, peers[peer], own, until);
    if (sockets[peer] < 0 && error == 0) error = sockets[peer];
  }
  Greetings<std::uint32_t> greetings(net, listener, kGreetingNs);
  for (std::uint32_t left = ranks - 1 - own; left > 0 && error == 0;) {
    std::uint32_t caller = 0;
    const Socket socket = greetings.next(caller, until);
    if (socket < 0) return socket;
    if (caller > own && caller < ranks && sockets[caller] < 0) {
      sockets[caller] = socket;
      --left;
    } else {
      net.close(me, socket);
    }
  }
  return error;
}

}  // namespace gpusock
