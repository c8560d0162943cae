#pragma once
/// @file Lines and messages: a Reader and a Writer on a connected stream socket, for whole groups.
///
/// Both belong to one group. Each thread of the group holds one; all threads call the same functions with the same
/// arguments, and get the same results. Their buffers belong to the group: memory that all its threads can use (shared
/// or device memory; for one thread, its own).
///
/// A Reader takes only the bytes of the line or message that it is reading. Between two lines or messages, poll reports
/// kPollIn whenever there is something to read, the socket can be passed on, and the program may also call recv. After
/// -EAGAIN or -ETIMEDOUT the Reader keeps the part that has arrived: use the same Reader again. Reader::begun() is then
/// true.
///
/// In a server that polls many sockets, each client has a Reader and a Writer. Call Reader::line(Deadline::now()) after
/// kPollIn, and Writer::flush(Deadline::now()) after each answer. Poll for kPollOut while Writer::pending() is not 0.

#include "gpusock/device.cuh"
#include "gpusock/text.cuh"

#include <concepts>

namespace gpusock {

/// What a Reader has received.
struct Received {
  const char* data = nullptr;  ///< in the Reader's buffer, until its next call; nullptr at the end and with an error
  std::int64_t size = 0;       ///< bytes, or a negated errno

  GPUSOCK_FN bool ended() const { return data == nullptr && size == 0; }  ///< true if the stream has ended
  GPUSOCK_FN bool failed() const { return size < 0; }                     ///< true if `size` is an error
  GPUSOCK_FN explicit operator bool() const { return data != nullptr; }   ///< true if there is data, also of 0 bytes
  /// Returns 0 if there is data, otherwise the error, or -EPIPE at the end of the stream.
  GPUSOCK_FN int error() const { return data != nullptr ? 0 : size == 0 ? -EPIPE : static_cast<int>(size); }
  /// The data as Text; empty if there is none.
  GPUSOCK_FN Text text() const { return {data, data == nullptr ? 0 : static_cast<std::size_t>(size)}; }
};

namespace detail {

/// Returns the index of the first `c` in memory that the group can use, or `bytes` if there is none. All threads get
/// the result.
template <class Group>
GPUSOCK_FN std::uint64_t find_first(const Group& group, const char* in, std::uint64_t bytes, char c) {
#if GPUSOCK_ON_GPU
  std::uint64_t mine = group.thread_rank();
  while (mine < bytes && in[mine] != c) mine += group.num_threads();
  return smallest(group, mine < bytes ? mine : bytes);
#else
  // On a CPU a block's threads share one processor: the leader alone is the fastest.
  std::uint64_t first = bytes;
  if (group.thread_rank() == 0) {
    const void* found = __builtin_memchr(in, c, bytes);
    if (found != nullptr) first = static_cast<std::uint64_t>(static_cast<const char*>(found) - in);
  }
  first = broadcast(group, first);
  group.sync();
  return first;
#endif
}

}  // namespace detail

/// The progress of a Reader. A group keeps it for a client while it serves others.
struct ReaderProgress {
  std::uint64_t filled = 0;  ///< bytes of the line, piece or message that have arrived
  std::uint64_t length = 0;  ///< bytes of the message
  std::uint64_t taken = 0;   ///< bytes that were ever taken from the socket
  bool in_message = false;   ///< true if the message's length has arrived
  bool finished = false;     ///< true if the caller was given what is in the buffer
};

/// The progress of a Writer. Its buffer is a ring: bytes past its end lie at its start, where earlier ones were sent.
struct WriterProgress {
  std::size_t used = 0;  ///< where the next byte is written, counted from the start of the buffer
  std::size_t sent = 0;  ///< where the next byte to send is; less than the buffer's size
  int error = 0;         ///< 0, or the first error
};

/// Reads lines, pieces of a known length, and messages that begin with their length.
///
/// Every call may return the errors of Net::recv(), and these: -EPROTO, the stream ends within the line, piece or
/// message; -EMSGSIZE, it is longer than the buffer, and the stream cannot be read any further as lines or messages;
/// -EPROTOTYPE, the socket carries records. After -ETIMEDOUT or -EAGAIN make the same call again: it goes on where it
/// was. Finish a line, piece or message with the kind of call that began it.
template <class Group>
class Reader {
 public:
  /// A Reader without a socket, for an array of seats: assign one that has a socket. Memory that is all zeros, such as
  /// a new DeviceBuffer's, holds the same. Reading returns -EBADF. Only for groups that can be default constructed and
  /// assigned: on a GPU ThisThread, not a block.
  Reader() requires std::is_default_constructible_v<Group>
  = default;

  /// `buffer` has `bytes` bytes: enough for the longest line (with its end), piece or message.
  GPUSOCK_FN Reader(const Group& group, const Net& net, Socket socket, void* buffer, std::size_t bytes)
      : group_(group), net_(net), socket_(socket), buffer_(static_cast<char*>(buffer)), room_(bytes) {}

  /// Receives the next line, without its end: `\n` or `\r\n`. An empty line is not the end of the stream: it has data.
  GPUSOCK_FN_OF_GROUP Received line(Deadline deadline = Deadline::by_default()) {
    Received line = until('\n', deadline);
    if (line && line.size > 0 && line.data[line.size - 1] == '\r') --line.size;
    return line;
  }

  /// Receives the bytes before the next `delimiter`, which is consumed too.
  GPUSOCK_FN_OF_GROUP Received until(char delimiter, Deadline deadline = Deadline::by_default()) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& reader) { return reader.until(delimiter, deadline); }), at_);
    return until_by_all(delimiter, deadline);
  }

  /// Receives the next `bytes` bytes, all of them. Returns -EINVAL if `bytes` is 0.
  GPUSOCK_FN_OF_GROUP Received exactly(std::size_t bytes, Deadline deadline = Deadline::by_default()) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& reader) { return reader.exactly(bytes, deadline); }), at_);
    return exactly_by_all(bytes, deadline);
  }

  /// Receives the next message: its length in 4 bytes (network byte order), then its bytes. An empty message is not the
  /// end of the stream: it has data.
  GPUSOCK_FN_OF_GROUP Received message(Deadline deadline = Deadline::by_default()) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& reader) { return reader.message(deadline); }), at_);
    return message_by_all(deadline);
  }

  /// Receives the next `bytes` bytes, all of them, into the caller's memory, which all threads of the group can use.
  /// These may be more than the Reader's buffer holds. Returns -EINVAL if `bytes` is 0.
  GPUSOCK_FN_OF_GROUP Received read(void* to, std::size_t bytes, Deadline deadline = Deadline::by_default()) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& reader) { return reader.read(to, bytes, deadline); }), at_);
    return read_by_all(to, bytes, deadline);
  }

  /// Receives all bytes up to the end of the stream, as read(). Returns -EMSGSIZE if there are more than `room`. If
  /// there are none, the result has data of 0 bytes.
  GPUSOCK_FN_OF_GROUP Received read_to_end(void* to, std::size_t room, Deadline deadline = Deadline::by_default()) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& reader) { return reader.read_to_end(to, room, deadline); }), at_);
    return read_to_end_by_all(to, room, deadline);
  }

  /// Drops the next `bytes` bytes. Returns 0 once all have arrived, or an error; -EPIPE at the end of the stream.
  GPUSOCK_FN_APART int skip(std::uint64_t bytes, Deadline deadline = Deadline::by_default()) {
    GPUSOCK_GROUP_CALL(group_);
    if (buffer_ == nullptr) return -EBADF;
    begin();
    while (at_.filled < bytes) {
      if (table::carries_records(socket_)) return -EPROTOTYPE;
      const Span span = net_.peek(group_, socket_, bytes - at_.filled, deadline);
      if (span.size == 0) return at_.filled == 0 ? -EPIPE : -EPROTO;
      if (span.size < 0) return static_cast<int>(span.size);
      if (const int error = take(static_cast<std::uint64_t>(span.size)); error != 0) return error;
    }
    at_.finished = true;
    return 0;
  }

  /// True if the Reader has received a part of a line, piece or message, or only the length of a message: the next call
  /// goes on with it.
  GPUSOCK_FN bool begun() const { return at_.in_message || (at_.filled != 0 && !at_.finished); }

  GPUSOCK_FN const ReaderProgress& progress() const { return at_; }  ///< for resume()
  /// Goes on where another Reader was, on the same socket and with the same buffer.
  GPUSOCK_FN void resume(const ReaderProgress& progress) { at_ = progress; }

  static constexpr std::size_t kLengthBytes = 4;  ///< bytes of the length with which a message begins

 private:
  static constexpr std::uint64_t kWindowBytes = 256;

#if GPUSOCK_KERNELS_ON_CPU
  /// Lets one thread read for all, with `call(reader)`, and keeps its progress.
  template <class Call>
  Received by_one(Call call) {
    Reader<ThisThread> reader(this_thread(), net_, socket_, buffer_, room_);
    reader.resume(at_);
    const Received got = call(reader);
    at_ = reader.progress();
    return got;
  }
#endif

  GPUSOCK_FN_APART Received until_by_all(char delimiter, Deadline deadline) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "until");
    begin();
    // The copy is small at first, because bytes after the line are copied again later; it grows if the line is long.
    for (std::uint64_t window = kWindowBytes;; window *= 2) {
      if (at_.filled == room_) return {nullptr, no_room()};
      const Received more = copy_arrived(window < room_ - at_.filled ? at_.filled + window : room_, deadline);
      if (!more) return more;
      const auto bytes = static_cast<std::uint64_t>(more.size);
      const std::uint64_t at = detail::find_first(group_, more.data, bytes, delimiter);
      const bool found = at < bytes;
      if (const int error = take(found ? at + 1 : bytes); error != 0) return {nullptr, error};
      if (found) return finish(at_.filled - 1);
    }
  }

  GPUSOCK_FN_APART Received exactly_by_all(std::size_t bytes, Deadline deadline) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "exactly");
    if (bytes == 0) return {nullptr, -EINVAL};
    if (bytes > room_) return {nullptr, no_room()};
    begin();
    while (at_.filled < bytes) {
      const Received more = copy_arrived(bytes, deadline);
      if (!more) return more;
      if (const int error = take(static_cast<std::uint64_t>(more.size)); error != 0) return {nullptr, error};
    }
    return finish(bytes);
  }

  GPUSOCK_FN_APART Received message_by_all(Deadline deadline) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "message");
    if (!at_.in_message) {
      const Received head = read_length(deadline);
      if (head.size <= 0) return head;
    }
    if (at_.length == 0) {
      at_.in_message = false;
      return finish(0);
    }
    const Received body = exactly(at_.length, deadline);
    if (body) at_.in_message = false;
    if (body.ended()) return {nullptr, -EPROTO};
    return body;
  }

  GPUSOCK_FN_APART Received read_by_all(void* to, std::size_t bytes, Deadline deadline) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "read");
    if (bytes == 0 || to == nullptr) return {nullptr, -EINVAL};
    begin();
    while (at_.filled < bytes) {
      const Received more = receive(to, bytes, deadline);
      if (!more) return more.ended() && at_.filled != 0 ? Received{nullptr, -EPROTO} : more;
    }
    return finish(to, bytes);
  }

  GPUSOCK_FN_APART Received read_to_end_by_all(void* to, std::size_t room, Deadline deadline) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "read_to_end");
    if (to == nullptr) return {nullptr, -EINVAL};
    begin();
    while (at_.filled < room) {
      const Received more = receive(to, room, deadline);
      if (more.ended()) return finish(to, at_.filled);
      if (!more) return more;
    }
    const Span beyond = net_.peek(group_, socket_, 1, deadline);
    if (beyond.size > 0) net_.release(group_, socket_, 0);
    if (beyond.size != 0) return {nullptr, beyond.size > 0 ? -EMSGSIZE : beyond.size};
    return finish(to, at_.filled);
  }

  GPUSOCK_FN int no_room() const { return buffer_ == nullptr ? -EBADF : -EMSGSIZE; }

  /// Begins a new line, piece or message if the caller was given the last one: the buffer is then free.
  GPUSOCK_FN void begin() {
    if (at_.finished) at_.filled = 0;
    at_.finished = false;
  }
  GPUSOCK_FN Received finish(std::uint64_t bytes) { return finish(buffer_, bytes); }
  GPUSOCK_FN Received finish(const void* data, std::uint64_t bytes) {
    at_.finished = true;
    return {static_cast<const char*>(data), static_cast<std::int64_t>(bytes)};
  }

  /// Receives the length with which a message begins, without using the buffer. Returns the size of the length, or why
  /// it has not arrived.
  GPUSOCK_FN Received read_length(Deadline deadline) {
    if (buffer_ == nullptr) return {nullptr, -EBADF};
    if (table::carries_records(socket_)) return {nullptr, -EPROTOTYPE};
    begin();
    if (at_.filled == 0) at_.length = 0;
    while (at_.filled < kLengthBytes) {
      const Span span = net_.peek(group_, socket_, kLengthBytes - at_.filled, deadline);
      if (span.size == 0 && at_.filled != 0) return {nullptr, -EPROTO};
      if (span.size <= 0) return {nullptr, span.size};
      at_.length = static_cast<std::uint64_t>(detail::by_leader(group_, [&] {
        std::uint64_t length = at_.length;
        for (std::int64_t i = 0; i < span.size; ++i)
          length = length << 8 | static_cast<const unsigned char*>(span.data)[i];
        return static_cast<std::int64_t>(length);
      }));
      if (const int error = take(static_cast<std::uint64_t>(span.size)); error != 0) return {nullptr, error};
    }
    at_.filled = 0;
    at_.in_message = true;
    return {nullptr, kLengthBytes};
  }

  /// Receives bytes into the caller's memory, after those that are there, until these are at most `end` bytes.
  GPUSOCK_FN Received receive(void* to, std::uint64_t end, Deadline deadline) {
    if (buffer_ == nullptr) return {nullptr, -EBADF};
    if (table::carries_records(socket_)) return {nullptr, -EPROTOTYPE};
    char* const next = static_cast<char*>(to) + at_.filled;
    const std::int64_t got = net_.recv(group_, socket_, next, end - at_.filled, 0, deadline);
    if (got <= 0) return {nullptr, got};
    at_.filled += static_cast<std::uint64_t>(got);
    at_.taken += static_cast<std::uint64_t>(got);
    return {next, got};
  }

  /// Copies arrived bytes into the buffer, after those that are there, until these are at most `end` bytes. take() then
  /// consumes those that are wanted.
  GPUSOCK_FN Received copy_arrived(std::uint64_t end, Deadline deadline) {
    if (table::carries_records(socket_)) return {nullptr, -EPROTOTYPE};
    const Span span = net_.peek(group_, socket_, end - at_.filled, deadline);
    if (span.size == 0 && at_.filled != 0) return {nullptr, -EPROTO};
    if (span.size <= 0) return {nullptr, span.size};
    copy(group_, buffer_ + at_.filled, span.data, static_cast<std::uint64_t>(span.size));
    group_.sync();
    return {buffer_ + at_.filled, span.size};
  }
  GPUSOCK_FN int take(std::uint64_t bytes) {
    at_.filled += bytes;
    at_.taken += bytes;
    return net_.release(group_, socket_, bytes);
  }

  Group group_;
  Net net_;
  Socket socket_ = 0;
  char* buffer_ = nullptr;
  std::uint64_t room_ = 0;
  ReaderProgress at_;
};

/// Collects text, numbers, bytes and messages, and sends them in as few pieces as its buffer allows. After the first
/// error nothing more is sent; flush() and error() return that error: one of Net::send(), or -EINVAL for a buffer of 0
/// bytes.
///
/// A full buffer is sent before more is written to it, and flush() without a deadline sends the rest. Both wait up to
/// the timeout, and a timeout is an error like the others. If data is larger than the buffer, only its last part is
/// copied into the buffer. flush(Deadline) is for groups that must not wait: bytes that could not be sent yet stay in
/// the buffer, and that is no error.
template <class Group>
class Writer {
 public:
  /// A Writer without a socket, as the Reader without one. Writing gives the error -EBADF.
  Writer() requires std::is_default_constructible_v<Group>
  = default;

  /// `buffer` has `bytes` bytes, at least one. `timeout_ns`: how long each sending may take before the error is
  /// -ETIMEDOUT. The largest number means for ever. 0: sending does not wait, and -ETIMEDOUT means that the buffer and
  /// the tx ring have no room.
  GPUSOCK_FN Writer(const Group& group, const Net& net, Socket socket, void* buffer, std::size_t bytes,
                    std::uint64_t timeout_ns)
      : group_(group),
        net_(net),
        socket_(socket),
        buffer_(static_cast<char*>(buffer)),
        room_(bytes),
        timeout_ns_(timeout_ns),
        at_{.error = bytes == 0 ? -EINVAL : 0} {}

  /// Writes bytes, which must be the same for all threads: each may pass the same memory, or a copy of its own.
  GPUSOCK_FN_APART Writer& write(const void* data, std::size_t bytes) {
    GPUSOCK_GROUP_CALL(group_);
    const auto* from = static_cast<const char*>(data);
    while (bytes != 0 && at_.error == 0) {
      if (room_ == 0) at_.error = -EBADF;
      if (at_.error == 0 && pending() == room_) make_room();
      if (at_.error != 0) break;
      if (at_.used == 0 && bytes > room_) {  // bytes that the buffer cannot hold are sent from where they lie
        const std::int64_t sent = net_.send(group_, socket_, from, bytes - room_, kMore,
                                            Deadline::after_ns(timeout_ns_));
        if (sent < 0) at_.error = static_cast<int>(sent);
        if (sent > 0) from += sent, bytes -= static_cast<std::size_t>(sent);
        continue;
      }
      const bool wraps = at_.used >= room_;
      const std::size_t room = room_ - (wraps ? pending() : at_.used);  // in one piece
      const std::size_t part = bytes < room ? bytes : room;
      copy(group_, buffer_ + at_.used - (wraps ? room_ : 0), from, part);
      at_.used += part;
      from += part;
      bytes -= part;
    }
    return *this;
  }

  /// Writes a text.
  GPUSOCK_FN Writer& operator<<(Text text) { return write(text.data, text.bytes); }
  /// Writes a literal.
  template <std::size_t kBytes>
  GPUSOCK_FN Writer& operator<<(const char (&literal)[kBytes]) {
    return *this << gpusock::text(literal);
  }
  /// Writes a character.
  template <std::same_as<char> Char>  // else bool and floating-point numbers would become characters
  GPUSOCK_FN Writer& operator<<(Char c) {
    return write(&c, 1);
  }
  /// Writes a number in decimal digits.
  template <Integer Number>
  GPUSOCK_FN Writer& operator<<(Number number) {
    const Decimal decimal(number);
    return *this << decimal.text();
  }

  /// Writes a message, as Reader::message() reads it. More than 4 GiB give the error -EMSGSIZE.
  GPUSOCK_FN Writer& message(const void* data, std::size_t bytes) {
    if (bytes > 0xffffffffu) {
      if (at_.error == 0) at_.error = -EMSGSIZE;
      return *this;
    }
    const auto length = static_cast<std::uint32_t>(bytes);
    const unsigned char head[] = {static_cast<unsigned char>(length >> 24), static_cast<unsigned char>(length >> 16),
                                  static_cast<unsigned char>(length >> 8), static_cast<unsigned char>(length)};
    return write(head, sizeof head).write(data, bytes);
  }

  /// Sends what is in the buffer. Returns 0, or the first error.
  GPUSOCK_FN int flush() {
    if (pending() != 0) send(kWaitAll);
    return at_.error;
  }

  /// Sends what the socket takes before the deadline. Returns 0 if all is sent, or the first error. Returns -EAGAIN
  /// (Deadline::now()) or -ETIMEDOUT if pending() bytes stay in the buffer: the next flush() goes on with them.
  GPUSOCK_FN int flush(Deadline deadline) { return pending() == 0 ? at_.error : send(0, &deadline).error; }

  GPUSOCK_FN std::size_t pending() const { return at_.used - at_.sent; }  ///< bytes in the buffer that wait to be sent

  GPUSOCK_FN int error() const { return at_.error; }  ///< 0, or the first error

  GPUSOCK_FN const WriterProgress& progress() const { return at_; }           ///< for resume()
  GPUSOCK_FN void resume(const WriterProgress& progress) { at_ = progress; }  ///< goes on where another Writer was

 private:
  template <class>
  friend class Writer;

  /// After an error nothing more is sent.
  GPUSOCK_FN void drop_after_error() {
    if (at_.error != 0) at_.used = at_.sent = 0;
  }
  GPUSOCK_FN void fail(std::int64_t error) {
    at_.error = static_cast<int>(error);
    drop_after_error();
  }

  /// Sends those pending bytes that lie in one piece, with Net::send(), and returns the result.
  GPUSOCK_FN std::int64_t send_piece(int flags, Deadline deadline) {
    const std::size_t end = at_.used < room_ ? at_.used : room_;
    const std::int64_t sent = net_.send(group_, socket_, buffer_ + at_.sent, end - at_.sent, flags, deadline);
    if (sent > 0) at_.sent += static_cast<std::size_t>(sent);
    if (pending() == 0) at_.used = at_.sent = 0;
    if (at_.sent == room_) at_.used -= room_, at_.sent = 0;
    return sent;
  }

  /// A result. It is no number: so all threads get the Writer's progress also with an error.
  struct Sent {
    int error;
  };

  /// Sends all that is pending. If that fails, the Writer has an error. With `until` it sends what the socket takes
  /// before that deadline, and it is no error if bytes stay in the buffer.
  GPUSOCK_FN_OF_GROUP Sent send(int flags, const Deadline* until = nullptr) {
    GPUSOCK_CALL_OF_LEADER(group_, by_one([&](auto& writer) { return writer.send(flags, until); }), at_);
    return send_by_all(flags, until);
  }

#if GPUSOCK_KERNELS_ON_CPU
  /// Lets one thread send for all, with `call(writer)`, and keeps its progress.
  template <class Call>
  Sent by_one(Call call) {
    Writer<ThisThread> writer(this_thread(), net_, socket_, buffer_, room_, timeout_ns_);
    writer.resume(at_);
    const Sent sent{call(writer).error};
    at_ = writer.progress();
    return sent;
  }
#endif

  GPUSOCK_FN_APART Sent send_by_all(int flags, const Deadline* until) {
    GPUSOCK_GROUP_CALL_NAMED(group_, "send");
    group_.sync();  // all have written their part
    const Deadline deadline = until != nullptr ? *until : Deadline::after_ns(timeout_ns_);
    while (at_.error == 0 && pending() != 0) {
      const std::int64_t sent = send_piece(flags, deadline);
      if (until != nullptr && (sent == -EAGAIN || sent == -ETIMEDOUT)) return {static_cast<int>(sent)};
      if (sent < 0) fail(sent);
    }
    drop_after_error();
    return {at_.error};
  }

  /// Makes room in a full buffer. With a timeout it sends all that is pending. Without one it sends what the socket
  /// takes; if that is nothing, the Writer has an error.
  GPUSOCK_FN void make_room() {
    if (timeout_ns_ != 0) {
      send(kWaitAll | kMore);
      return;
    }
    group_.sync();  // all have written their part
    if (const std::int64_t sent = send_piece(kMore, Deadline::now()); sent < 0)
      fail(sent == -EAGAIN ? -ETIMEDOUT : sent);
  }

  Group group_;
  Net net_;
  Socket socket_ = 0;
  char* buffer_ = nullptr;
  std::size_t room_ = 0;
  std::uint64_t timeout_ns_ = 0;
  WriterProgress at_;
};

}  // namespace gpusock
