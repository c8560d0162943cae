// What Reader and Writer promise, in each scope: lines and messages come whole, however they were cut on their way,
// and nothing more than they is taken. What a Writer could not send yet, it keeps.
#include <gpusock/io.cuh>

#include "tests/conformance/party.cuh"
#include "tests/unit/io/plain_http_client.cuh"

#include <algorithm>
#include <random>
#include <string>

namespace gpusock::conformance::io {
namespace {

constexpr std::uint64_t kRing = 4 << 10;  // small: what is read goes past its end often
constexpr std::size_t kBuffer = 1 << 10;

Options small_rings() {
  Options options;
  options.ring_bytes = kRing;
  options.sockets_max = 16;
  options.connections_max = 8;
  return options;
}

template <class Scope>
class Io : public testing::Test {
 protected:
  Party<Scope> reading_{small_rings()};
  Party<HostScope> writing_{small_rings()};
  Mapped<char> buffer_{reading_.context, kBuffer};
};
#if defined(__CUDACC__)
using Scopes = testing::Types<WarpScope, BlockScope>;
#else
using Scopes = testing::Types<ThreadScope, WarpScope, BlockScope, HostScope>;
#endif
TYPED_TEST_SUITE(Io, Scopes, ScopeName);

GPUSOCK_FN char letter(std::uint64_t line, std::uint64_t at) { return static_cast<char>('a' + (line * 7 + at) % 26); }

/// True if all letters of a text are those of line `number`: each thread looks at its share.
template <class Group>
GPUSOCK_FN bool is_line(const Group& group, Text text, std::uint64_t number) {
  int wrong = 0;
  for (std::size_t i = group.thread_rank(); i < text.bytes; i += group.num_threads())
    wrong += text[i] != letter(number, i);
  return detail::sum(group, wrong) == 0;
}

/// Sends bytes in pieces of drifting sizes.
struct Pieces {
  const Net& net;
  Socket socket;
  Sizes sizes{5, 700};

  GPUSOCK_FN bool send(Text all) {
    for (std::size_t done = 0; done < all.bytes;) {
      const std::size_t next = sizes.next(), part = next < all.bytes - done ? next : all.bytes - done;
      if (net.send(this_thread(), socket, all.data + done, part, kWaitAll, patience()) < 0) return false;
      done += part;
    }
    return true;
  }
};

struct SendInPieces {
  Text all;
  template <class Group>
  GPUSOCK_FN void operator()(const Group&, const Net& net, Socket socket, Report*) {
    Pieces{net, socket}.send(all);
  }
};
SendInPieces send_in_pieces(const std::string& all) { return {{all.data(), all.size()}}; }

constexpr int kLines = 200;
GPUSOCK_FN std::uint64_t length_of(int line) { return line % 10 == 0 ? 0 : (line * 131) % (kBuffer - 2); }

/// Reads all lines, or all messages, and compares each with what was sent.
struct ReadAll {
  char* buffer;
  bool messages;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Reader<Group> reader(group, net, socket, buffer, kBuffer);
    int count = 0;
    Received next;
    while ((next = messages ? reader.message(patience()) : reader.line(patience()))) {
      if (next.size != static_cast<std::int64_t>(length_of(count)) || !is_line(group, next.text(), count)) break;
      ++count;
    }
    note(group, report, 0, count);
    note(group, report, 1, next.ended());
  }
};

TYPED_TEST(Io, LinesComeWholeHoweverTheyWereCut) {
  std::string all;
  for (int line = 0; line < kLines; ++line) {
    for (std::uint64_t i = 0; i < length_of(line); ++i) all += letter(line, i);
    all += line % 3 == 0 ? "\r\n" : "\n";
  }
  converse(this->reading_, this->writing_, LinkKind::tcp, ReadAll{this->buffer_.data(), false}, send_in_pieces(all));
  EXPECT_EQ(this->reading_.result(0), kLines);
  EXPECT_TRUE(this->reading_.result(1)) << "the end of the stream is told from an empty line";
}

/// By a Writer whose buffer is smaller than most messages.
struct WriteMessages {
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    char buffer[100];
    Writer<Group> writer(group, net, socket, buffer, sizeof buffer, kPatienceNs);
    for (int i = 0; i < kLines; ++i) {
      char bytes[kBuffer];
      for (std::uint64_t at = 0; at < length_of(i); ++at) bytes[at] = letter(i, at);
      writer.message(bytes, length_of(i));
    }
    note(group, report, 0, writer.flush());
  }
};

TYPED_TEST(Io, MessagesComeWholeAndMayBeEmpty) {
  converse(this->reading_, this->writing_, LinkKind::tcp, ReadAll{this->buffer_.data(), true}, WriteMessages{});
  EXPECT_EQ(this->reading_.result(0), kLines);
  EXPECT_TRUE(this->reading_.result(1));
  EXPECT_EQ(this->writing_.result(0), 0);
}

/// What is read of "one\ntwo" and its end, in several ways.
struct TakeNoMore {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Reader<Group> reader(group, net, socket, buffer, kBuffer);
    const Received line = reader.line(patience());
    note(group, report, 0, line.size);
    const Received piece = reader.exactly(2, patience());
    note(group, report, 1, piece && same(piece.text(), text("tw")));
    note(group, report, 2, net.recv(group, socket, buffer, kBuffer, 0, patience()));
    note(group, report, 3, reader.line(Deadline::now()).size);
    report->reached[0].raise();
    const Received rest = reader.line(patience());  // "half a li" had come when it was asked before
    note(group, report, 4, rest && same(rest.text(), text("half a line")));
    note(group, report, 5, reader.line(patience()).size);  // the stream ends within one
  }
};

struct SendInSteps {
  Report* readers;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report*) {
    const auto send = [&](Text text) { net.send(group, socket, text.data, text.bytes, kWaitAll, patience()); };
    send(text("one\ntwo"));
    readers->reached[0].wait(group);
    send(text("half a line\nand the next"));
  }
};

TYPED_TEST(Io, NothingMoreIsTakenThanIsReturned) {
  converse(this->reading_, this->writing_, LinkKind::tcp, TakeNoMore{this->buffer_.data()},
           SendInSteps{&this->reading_.report()});
  EXPECT_EQ(this->reading_.result(0), 3);
  EXPECT_TRUE(this->reading_.result(1));
  EXPECT_EQ(this->reading_.result(2), 1) << "what a reader did not return is there for recv";
  EXPECT_EQ(this->reading_.result(3), -EAGAIN);
  EXPECT_TRUE(this->reading_.result(4));
  EXPECT_EQ(this->reading_.result(5), -EPROTO);
}

/// A line that arrives while it is asked for, in two parts.
struct ReadInParts {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Reader<Group> reader(group, net, socket, buffer, kBuffer);
    PollEntry entry{socket, kPollIn, 0};
    net.poll(this_thread(), &entry, 1, patience());
    group.sync();
    Received line = reader.line(Deadline::now());
    note(group, report, 0, line.size);
    note(group, report, 2, net.poll(this_thread(), &entry, 1, Deadline::now()));  // its first part was taken
    note(group, report, 6, reader.begun());
    group.sync();
    report->reached[0].raise();
    line = reader.line(patience());
    note(group, report, 1, line && same(line.text(), text("in two parts")));
    note(group, report, 7, reader.begun());
    note(group, report, 3, reader.message(patience()).size);  // its length is beyond the buffer
    note(group, report, 4, reader.exactly(kBuffer + 1, patience()).size);
    note(group, report, 5, reader.exactly(0, patience()).size);
  }
};

struct SendParts {
  Report* readers;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report*) {
    const auto send = [&](Text text) { net.send(group, socket, text.data, text.bytes, kWaitAll, patience()); };
    send(text("in two"));
    readers->reached[0].wait(group);
    send(text(" parts\r\n"));
    const unsigned char too_long[] = {0, 1, 0, 0};
    net.send(group, socket, too_long, sizeof too_long, kWaitAll, patience());
  }
};

TYPED_TEST(Io, ALineGoesOnWhereItWasWhenTimeWasUp) {
  converse(this->reading_, this->writing_, LinkKind::tcp, ReadInParts{this->buffer_.data()},
           SendParts{&this->reading_.report()});
  EXPECT_EQ(this->reading_.result(0), -EAGAIN);
  EXPECT_EQ(this->reading_.result(2), 0);
  EXPECT_TRUE(this->reading_.result(1));
  EXPECT_EQ(this->reading_.result(3), -EMSGSIZE);
  EXPECT_EQ(this->reading_.result(4), -EMSGSIZE);
  EXPECT_EQ(this->reading_.result(5), -EINVAL);
  EXPECT_TRUE(this->reading_.result(6)) << "a part of the line has come";
  EXPECT_FALSE(this->reading_.result(7)) << "it is returned";
}

/// Leaves input unread, so it closes last: closing would reset the connection.
struct ReadTooLong {
  char* buffer;
  Report* writers;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Reader<Group> reader(group, net, socket, buffer, 8);
    note(group, report, 0, reader.line(patience()).size);
    note(group, report, 1, reader.line(patience()).size);
    writers->reached[0].wait(group);
  }
};

/// Text and numbers by a Writer in pieces of 4 bytes; then nothing goes any more, and the first error stays.
struct WriteText {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Writer<Group> writer(group, net, socket, buffer, 4, kPatienceNs);
    writer << "a" << 'b' << -12 << std::uint64_t{34} << text("\n") << "far too long a line\n";
    note(group, report, 0, writer.flush());
    net.shutdown(group, socket, Shutdown::write);
    writer << "more than the buffer";
    note(group, report, 1, writer.error());
    note(group, report, 2, writer.flush());
    report->reached[0].raise();
  }
};

TYPED_TEST(Io, AWriterSendsTextAndKeepsItsFirstError) {
  Mapped<char> small(this->writing_.context, 8);
  Mapped<char> lines(this->reading_.context, 4);
  converse(this->writing_, this->reading_, LinkKind::tcp, ReadTooLong{small.data(), &this->reading_.report()},
           WriteText{lines.data()});
  EXPECT_EQ(this->reading_.result(0), 0);
  EXPECT_EQ(this->reading_.result(1), -EPIPE);
  EXPECT_EQ(this->reading_.result(2), -EPIPE);
  EXPECT_EQ(this->writing_.result(0), 7) << "ab-1234";
  EXPECT_EQ(this->writing_.result(1), -EMSGSIZE);
}

/// A line between pieces that are larger than the Reader's buffer and the ring, and then the rest.
struct ReadPieces {
  char *buffer, *to;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Reader<Group> reader(group, net, socket, buffer, 8);
    note(group, report, 0, reader.skip(10'000, patience()));
    note(group, report, 1, reader.line(patience()).size);
    const Received piece = reader.read(to, 6'000, patience());
    note(group, report, 2, piece.size == 6'000 && piece.data == to && is_line(group, {to, 6'000}, 1));
    note(group, report, 3, reader.read_to_end(to, 99, patience()).error());
    const Received rest = reader.read_to_end(to, 101, patience());
    note(group, report, 4, rest.size == 100 && is_line(group, {to, 100}, 2));
    note(group, report, 5, reader.skip(1, patience()));
    note(group, report, 6, reader.read_to_end(to, 1, patience()).error() == 0);
  }
};

TYPED_TEST(Io, PiecesLargerThanTheBufferGoWhereTheCallerSays) {
  std::string all = std::string(10'000, '\n') + "five.\n";
  for (std::uint64_t i = 0; i < 6'000; ++i) all += letter(1, i);
  for (std::uint64_t i = 0; i < 100; ++i) all += letter(2, i);
  Mapped<char> to(this->reading_.context, 6'000);
  converse(this->reading_, this->writing_, LinkKind::tcp, ReadPieces{this->buffer_.data(), to.data()},
           send_in_pieces(all));
  EXPECT_EQ(this->reading_.result(0), 0);
  EXPECT_EQ(this->reading_.result(1), 5);
  EXPECT_TRUE(this->reading_.result(2));
  EXPECT_EQ(this->reading_.result(3), -EMSGSIZE);
  EXPECT_TRUE(this->reading_.result(4));
  EXPECT_EQ(this->reading_.result(5), -EPIPE);
  EXPECT_TRUE(this->reading_.result(6)) << "an empty rest is no error";
}

constexpr std::size_t kMuch = 26 * 630;  // four rings, of alphabets

/// More than the rings hold, without waiting: what they do not take stays in the Writer, also while more is written.
struct WriteMuch {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Writer<Group> writer(group, net, socket, buffer, kMuch, kPatienceNs);
    for (std::size_t i = 26; i < kMuch; i += 26) writer << "abcdefghijklmnopqrstuvwxyz";
    note(group, report, 0, writer.flush(Deadline::now()));
    note(group, report, 1, writer.flush(Deadline::after_ns(1)));
    note(group, report, 2, static_cast<std::int64_t>(writer.pending()));
    writer << "abcdefghijklmnopqrstuvwxyz";
    note(group, report, 3, writer.error());
    report->reached[0].raise();
    int result = -EAGAIN;
    for (std::int16_t ready = kPollOut; result == -EAGAIN && ready == kPollOut;) {
      PollEntry entry{socket, kPollOut, 0};
      net.poll(this_thread(), &entry, 1, patience());
      group.sync();
      ready = entry.revents;
      result = writer.flush(Deadline::now());
    }
    note(group, report, 4, result);
    note(group, report, 5, static_cast<std::int64_t>(writer.pending()));
    net.shutdown(group, socket, Shutdown::write);
    writer << 'x';
    note(group, report, 6, writer.flush(Deadline::now()) == -EPIPE && writer.error() == -EPIPE);
  }
};

/// Reads nothing before the writer has met full rings. Counts what comes, up to the first wrong byte.
struct ReadMuch {
  Report* writers;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    writers->reached[0].wait(group);
    char piece[256];
    std::int64_t right = 0;
    for (std::int64_t got = 1; got > 0;) {
      got = net.recv(group, socket, piece, sizeof piece, 0, patience());
      for (std::int64_t i = 0; i < got && piece[i] == letter(0, right); ++i) ++right;
    }
    note(group, report, 0, right);
  }
};

TYPED_TEST(Io, AWriterKeepsWhatCouldNotBeSentYet) {
  Mapped<char> much(this->reading_.context, kMuch);
  converse(this->reading_, this->writing_, LinkKind::p2p, WriteMuch{much.data()}, ReadMuch{&this->reading_.report()});
  EXPECT_EQ(this->reading_.result(0), -EAGAIN);
  EXPECT_EQ(this->reading_.result(1), -ETIMEDOUT);
  EXPECT_GT(this->reading_.result(2), 0);
  EXPECT_EQ(this->reading_.result(3), 0) << "there will be room later: that is no error";
  EXPECT_EQ(this->reading_.result(4), 0);
  EXPECT_EQ(this->reading_.result(5), 0);
  EXPECT_TRUE(this->reading_.result(6)) << "a real error stays";
  EXPECT_EQ(this->writing_.result(0), kMuch);
}

/// Fills its buffer and the ring without waiting. What the ring has taken makes room in the buffer.
struct WriteIntoWhatWasSent {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Writer<Group> writer(group, net, socket, buffer, kMuch, 0);
    for (std::size_t i = 0; i < kMuch; i += 26) writer << "abcdefghijklmnopqrstuvwxyz";
    note(group, report, 0, writer.flush(Deadline::now()));
    const std::size_t taken = kMuch - writer.pending();
    for (std::size_t i = 0; i < taken; ++i) writer << letter(0, i);
    note(group, report, 1, writer.error());
    note(group, report, 2, writer.pending() == kMuch);
    note(group, report, 3, static_cast<std::int64_t>(taken));
    report->reached[0].raise();
    int result = -EAGAIN;
    while (result == -EAGAIN) result = flush_more(group, net, socket, writer);
    note(group, report, 4, result);
  }

  template <class Group>
  GPUSOCK_FN static int flush_more(const Group& group, const Net& net, Socket socket, Writer<Group>& writer) {
    PollEntry entry{socket, kPollOut, 0};
    const int ready = net.poll(this_thread(), &entry, 1, patience());
    group.sync();
    return ready == 1 ? writer.flush(Deadline::now()) : -ETIMEDOUT;
  }
};

TYPED_TEST(Io, AWritersBufferHasRoomAgainForWhatWasSent) {
  Mapped<char> much(this->reading_.context, kMuch);
  converse(this->reading_, this->writing_, LinkKind::p2p, WriteIntoWhatWasSent{much.data()},
           ReadMuch{&this->reading_.report()});
  EXPECT_EQ(this->reading_.result(0), -EAGAIN);
  EXPECT_EQ(this->reading_.result(1), 0);
  EXPECT_TRUE(this->reading_.result(2));
  EXPECT_GT(this->reading_.result(3), 0);
  EXPECT_EQ(this->reading_.result(4), 0);
  EXPECT_EQ(this->writing_.result(0), kMuch + this->reading_.result(3));
}

/// Both ends of a connection of host threads.
struct Ends {
  Context context{from_environment(small_rings())};
  Net net = context.net();
  Socket listener = net.listen(this_thread(), loopback(LinkKind::p2p), 1, patience());
  Socket writing = connected();
  Socket reading = net.accept(this_thread(), listener, patience());

  Socket connected() {
    Endpoint at;
    net.getsockname(listener, at);
    return net.connect(this_thread(), at, patience());
  }
};

TEST(Writers, HaveAnErrorOnlyWhereNeitherBufferNorRingHasRoom) {
  constexpr std::uint64_t kSmall = 100;
  Ends ends;
  char buffer[kSmall], bytes[3 * kSmall];
  Writer<ThisThread> writer(this_thread(), ends.net, ends.writing, buffer, kSmall, 0);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uint64_t written = 0, read = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::uint64_t room = kRing + kSmall - (written - read), wanted = random() % sizeof bytes;
    const std::uint64_t part = std::min(wanted, room);
    for (std::uint64_t i = 0; i < part; ++i) bytes[i] = letter(0, written + i);
    writer.write(bytes, part);
    ASSERT_EQ(writer.error(), 0) << turn << ": " << part << " bytes, room for " << room;
    written += part;
    if (random() % 2 == 0) {
      const int flushed = writer.flush(Deadline::now());
      ASSERT_TRUE(flushed == 0 || flushed == -EAGAIN) << flushed;
    }
    // Now and then there is nothing to read: all may wait in the buffer.
    const auto got = ends.net.recv(this_thread(), ends.reading, bytes, 1 + random() % (sizeof bytes - 1), kDontWait);
    for (std::int64_t i = 0; i < got; ++i) ASSERT_EQ(bytes[i], letter(0, read++)) << turn;
  }
  std::string rest(kRing + kSmall - (written - read), 'x');
  writer.write(rest.data(), rest.size());
  EXPECT_EQ(writer.error(), 0) << "all is full, to the last byte";
  writer << 'x';
  EXPECT_EQ(writer.error(), -ETIMEDOUT);
}

/// Messages of up to as many bytes as the buffer has, which is less than their length takes; also in pieces.
struct ReadSmallMessages {
  char* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    for (int bytes = 0; bytes < 4; ++bytes) {
      Reader<Group> reader(group, net, socket, buffer, bytes);
      Received first{nullptr, -EAGAIN};
      while (first.size == -EAGAIN) first = reader.message(Deadline::now());
      const Received second = reader.message(patience());
      note(group, report, bytes,
           first && second && same(first.text(), Text{"abc", static_cast<std::size_t>(bytes)}) && second.size == 0);
    }
    Reader<Group> reader(group, net, socket, buffer, 3);
    note(group, report, 4, reader.message(patience()).size);
  }
};

TYPED_TEST(Io, AMessagesLengthNeedsNoRoomInTheBuffer) {
  std::string all;
  for (unsigned bytes = 0; bytes < 4; ++bytes) {
    all += std::string(3, '\0') + static_cast<char>(bytes) + std::string("abc").substr(0, bytes) + std::string(4, '\0');
  }
  all += std::string(3, '\0') + "\4abcd";
  converse(this->reading_, this->writing_, LinkKind::tcp, ReadSmallMessages{this->buffer_.data()},
           SendInPieces{{all.data(), all.size()}});
  for (int bytes = 0; bytes < 4; ++bytes) EXPECT_TRUE(this->reading_.result(bytes)) << bytes;
  EXPECT_EQ(this->reading_.result(4), -EMSGSIZE);
}

/// A client's seat in an array that is all zeros, or default constructed.
struct Seat {
  Reader<ThisThread> reader;
  Writer<ThisThread> writer;
};

void expect_without_socket(Seat& seat) {
  EXPECT_EQ(seat.reader.line().size, -EBADF);
  EXPECT_EQ(seat.reader.exactly(1).size, -EBADF);
  EXPECT_EQ(seat.reader.message().size, -EBADF);
  EXPECT_EQ(seat.reader.skip(0), -EBADF);
  EXPECT_FALSE(seat.reader.begun());
  EXPECT_EQ(seat.writer.pending(), 0u);
  EXPECT_EQ(seat.writer.flush(Deadline::now()), 0);
  seat.writer << "text";
  EXPECT_EQ(seat.writer.flush(), -EBADF);
}

TEST(Seats, HaveNoSocketBeforeOneIsAssigned) {
  Seat seat;
  expect_without_socket(seat);
  Context context(small_rings());
  Mapped<Seat> zeros(context, 1);
  expect_without_socket(zeros[0]);
}

/// The smallest of all threads' values.
struct FindSmallest {
  Report* report;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net&) {
    const std::uint64_t last = group.num_threads() - 1;
    note(group, report, 0, detail::smallest(group, 100 + last - group.thread_rank()));
    note(group, report, 1, detail::smallest(group, group.thread_rank() == last ? 3 : ~std::uint64_t{0}));
  }
};

TYPED_TEST(Io, TheSmallestOfAllThreadsIsKnownToAll) {
  this->reading_.start(FindSmallest{&this->reading_.report()});
  this->reading_.join();
  EXPECT_EQ(this->reading_.result(0), 100);
  EXPECT_EQ(this->reading_.result(1), 3);
}

/// What plain::fetch_one() makes of a server's answer: the status, and the body.
std::pair<int, std::string> fetched(const std::string& answer) {
  constexpr std::size_t kBodyMax = 20;
  Context context(from_environment(small_rings()));
  const Net net = context.net();
  Mapped<plain::Fetch> fetch(context, 1);
  Mapped<char> body(context, kBodyMax), words(context, 10);
  const std::string text = "/itself:80";
  text.copy(words.data(), words.size());
  fetch[0] = {
      .path = words.data(), .host = words.data() + 1, .path_bytes = 7, .host_bytes = 9, .status = 0, .bytes = 0};
  const Socket listener = net.listen(this_thread(), loopback(LinkKind::tcp), 1, patience());
  Endpoint at;
  net.getsockname(listener, at);
  launch(context, {}, plain::fetch_one, context.net(), at, fetch.data(), body.data(), kBodyMax, kPatienceNs);
  const Socket client = net.accept(this_thread(), listener, patience());
  const std::string wanted =
      "GET /itself HTTP/1.1\r\nHost: itself:80\r\nUser-Agent: gpusock\r\nConnection: close\r\n\r\n";
  std::string request(wanted.size(), ' ');
  net.recv(this_thread(), client, request.data(), request.size(), kWaitAll, patience());
  EXPECT_EQ(request, wanted);
  Pieces{net, client}.send({answer.data(), answer.size()});
  net.shutdown(this_thread(), client, Shutdown::write);
  context.synchronize();
  net.close(this_thread(), client);
  net.close(this_thread(), listener);
  return {fetch[0].status,
          fetch[0].bytes < 0 ? "" : std::string(body.data(), static_cast<std::size_t>(fetch[0].bytes))};
}

TEST(PlainHttpClient, FetchesAsTheExampleDoes) {
  using Result = std::pair<int, std::string>;
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  EXPECT_EQ(fetched(ok + "Content-Length:  5 \r\n\r\nhello"), Result(200, "hello"));
  EXPECT_EQ(fetched("HTTP/1.1 100 Continue\r\n\r\n" + ok +
                    "Transfer-Encoding: Chunked\r\n\r\n4;x=y\r\nhell\r\nA\r\no and more\r\n" + "0\r\nLast: 1\r\n\r\n"),
            Result(200, "hello and more"));
  EXPECT_EQ(fetched("HTTP/1.0 404 Not Found\n\nto the end"), Result(404, "to the end"));
  EXPECT_EQ(fetched("HTTP/1.1 204 No Content\r\n\r\n"), Result(204, ""));
  EXPECT_EQ(fetched(ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), Result(-EBADMSG, ""));
  EXPECT_EQ(fetched(ok + "Content-Length: 21\r\n\r\n"), Result(-EMSGSIZE, ""));
  EXPECT_EQ(fetched(ok + "\r\n" + std::string(21, 'x')), Result(-EMSGSIZE, ""));
  EXPECT_EQ(fetched(ok + "Content-Length: 6\r\n\r\nhello"), Result(-EPROTO, ""));
  EXPECT_EQ(fetched("SSH-2.0-what\r\n"), Result(-EPROTO, ""));
  EXPECT_EQ(fetched(""), Result(-EPIPE, ""));
}

}  // namespace
}  // namespace gpusock::conformance::io
