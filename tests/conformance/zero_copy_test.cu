// What reserve, commit, abort, peek and release promise, and recv that only looks.
#include "tests/conformance/party.cuh"

namespace gpusock::conformance::zero_copy {
namespace {

constexpr std::uint64_t kRing = 4 << 10;
constexpr std::uint64_t kAtFirst = 100;

Options zero_copy_options(std::uint32_t sockets_max = 16) {
  Options options;
  options.ring_bytes = kRing;
  options.sockets_max = sockets_max;
  options.connections_max = 8;
  return options;
}

template <class Kind>
class ZeroCopy : public PartiesOnLink<Kind> {
 protected:
  ZeroCopy() : PartiesOnLink<Kind>(zero_copy_options()) {}

  Mapped<std::uint8_t> buffer_{this->party_.context, 2 * kRing};
  Mapped<std::uint8_t> other_buffer_{this->other_.context, 2 * kRing};
};

using Cases = testing::Types<OnLink<WarpScope, LinkKind::tcp>, OnLink<BlockScope, LinkKind::p2p>,
#if !defined(__CUDACC__)
                             OnLink<ThreadScope, LinkKind::p2p>, OnLink<BlockScope, LinkKind::tcp>,
                             OnLink<HostScope, LinkKind::tcp>,
#endif
                             OnLink<HostScope, LinkKind::p2p>>;
TYPED_TEST_SUITE(ZeroCopy, Cases, OnLinkName);

/// Sends the test's stream from reserved memory, committing sometimes less than was reserved, sometimes nothing. In
/// every other round it asks for room for all, past the ring's end too.
struct SendReserved {
  std::uint64_t total;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(12, 3000);
    std::uint64_t sent = 0;
    std::int64_t failed = 0, ends_met = 0;
    for (int round = 0; sent < total && failed == 0; ++round) {
      std::uint64_t wanted = sizes.next();
      if (wanted > total - sent) wanted = total - sent;
      Span rest;
      const bool all = round % 2 == 1;
      const Span span = all ? net.reserve(group, socket, wanted, rest, patience())
                            : net.reserve(group, socket, wanted, patience());
      if (span.size <= 0 || span.size + rest.size > static_cast<std::int64_t>(wanted)) failed = span.size;
      if (all && failed == 0 && span.size + rest.size != static_cast<std::int64_t>(wanted)) failed = -ENODATA;
      if (failed != 0) break;
      ends_met += rest.size != 0;
      const auto size = static_cast<std::uint64_t>(span.size + rest.size);
      for (std::uint64_t i = group.thread_rank(); i < size; i += group.num_threads()) {
        const auto first = static_cast<std::uint64_t>(span.size);
        auto* byte = static_cast<std::uint8_t*>(i < first ? span.data : rest.data) + (i < first ? i : i - first);
        *byte = byte_at(sent + i);
      }
      if (round % 7 == 3) {
        failed = net.abort(group, socket);
      } else {
        const std::uint64_t part = round % 3 == 0 ? (size + 1) / 2 : size;
        failed = net.commit(group, socket, part);
        sent += part;
      }
    }
    note(group, report, 0, static_cast<std::int64_t>(sent));
    note(group, report, 1, failed);
    note(group, report, 2, ends_met);
  }
};

/// Receives all by peeking, releasing sometimes less than was peeked.
struct ReceivePeeked {
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Sizes sizes(13, 3000);
    std::uint64_t received = 0;
    std::int64_t wrong = 0, last = 0;
    for (int round = 0;; ++round) {
      const Span span = net.peek(group, socket, sizes.next(), patience());
      last = span.size;
      if (last <= 0) break;
      const auto* bytes = static_cast<const std::uint8_t*>(span.data);
      if (group.thread_rank() == 0) {
        for (std::int64_t i = 0; i < last; ++i) wrong += bytes[i] != byte_at(received + i);
      }
      const std::uint64_t part = round % 5 == 2 ? static_cast<std::uint64_t>(last) / 2
                                                : static_cast<std::uint64_t>(last);
      wrong += net.release(group, socket, part) != 0;
      received += part;
    }
    note(group, report, 0, static_cast<std::int64_t>(received));
    note(group, report, 1, wrong);
    note(group, report, 2, last);
    note(group, report, 3, net.release(group, socket, 0));
  }
};

TYPED_TEST(ZeroCopy, EveryByteThatWasCommittedArrivesInOrder) {
  constexpr std::uint64_t kTotal = 300'000;
  converse(this->party_, this->other_, TypeParam::kLink, ReceivePeeked{}, SendReserved{kTotal});
  EXPECT_EQ(this->other_.result(0), static_cast<std::int64_t>(kTotal)) << "sent; error " << this->other_.result(1);
  EXPECT_EQ(this->party_.result(0), static_cast<std::int64_t>(kTotal)) << "received";
  EXPECT_EQ(this->party_.result(1), 0) << "wrong bytes, or releases that failed";
  EXPECT_EQ(this->party_.result(2), 0) << "the end of the stream is a span of no bytes";
  EXPECT_GT(this->other_.result(2), 0) << "reservations past the ring's end";
  EXPECT_EQ(this->party_.result(3), -EINVAL) << "and nothing to release";
}

TYPED_TEST(ZeroCopy, TheAcceptingSideReservesAsWell) {
  constexpr std::uint64_t kTotal = 100'000;
  converse(this->party_, this->other_, TypeParam::kLink, SendReserved{kTotal}, ReceivePeeked{});
  EXPECT_EQ(this->party_.result(0), static_cast<std::int64_t>(kTotal)) << "sent; error " << this->party_.result(1);
  EXPECT_EQ(this->other_.result(0), static_cast<std::int64_t>(kTotal));
  EXPECT_EQ(this->other_.result(1), 0);
}

/// Calls `look` until it returns 64, or 10 s have passed. Returns its last result.
template <class Group, class Look>
GPUSOCK_FN std::int64_t look_for_64(const Group& group, Look look) {
  const std::uint64_t end_ns = detail::broadcast(group, clock_ns()) + 10'000'000'000;
  std::int64_t size = look();
  while (size > 0 && size < 64 && detail::broadcast(group, clock_ns()) < end_ns) size = look();
  return size;
}

/// Fills the ring but for one byte, which does not lie at the ring's end, and reserves until there is room for more.
struct ReserveUntilThereIsRoom {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    Span rest;
    std::int64_t moved = net.send(group, socket, buffer, kAtFirst, 0, patience());
    moved += net.recv(group, socket, buffer, 1, 0, patience());  // the peer has taken them
    moved += net.reserve(group, socket, kRing, rest, patience()).size + rest.size + net.abort(group, socket);
    moved += net.send(group, socket, buffer, kRing - 1, 0, patience());
    note(group, report, 0, moved);
    note(group, report, 1, look_for_64(group, [&] {
           const Span span = net.reserve(group, socket, 64, patience());
           if (span.size > 0) net.abort(group, socket);
           return span.size;
         }));
  }
};

struct ReceiveToTheEnd {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::int64_t all = net.recv(group, socket, buffer, kAtFirst, kWaitAll, patience()), got = 0;
    net.send(group, socket, buffer, 1, 0, patience());
    while ((got = net.recv(group, socket, buffer, kRing, 0, patience())) > 0) all += got;
    note(group, report, 0, all);
  }
};

TYPED_TEST(ZeroCopy, AReservationAfterAnAbortSeesNewRoom) {
  converse(this->party_, this->other_, TypeParam::kLink, ReceiveToTheEnd{this->buffer_.data()},
           ReserveUntilThereIsRoom{this->other_buffer_.data()});
  EXPECT_EQ(this->other_.result(0), static_cast<std::int64_t>(kAtFirst + 1 + kRing + kRing - 1));
  EXPECT_EQ(this->other_.result(1), 64);
  EXPECT_EQ(this->party_.result(0), static_cast<std::int64_t>(kAtFirst + kRing - 1));
}

/// Sends one byte, and 63 more when the peer has seen it; twice.
struct SendInTwoParts {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::int64_t moved = 0;
    for (int round = 0; round < 2; ++round) {
      moved += net.send(group, socket, buffer, 1, 0, patience());
      moved += net.recv(group, socket, buffer, 1, kWaitAll, patience());
      moved += net.send(group, socket, buffer, 63, 0, patience());
    }
    note(group, report, 0, moved);
  }
};

/// Looks at what has arrived, and takes nothing, until all is there: by peek, and by recv.
struct LookUntilAllIsThere {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    const auto by_peek = [&] {
      const Span span = net.peek(group, socket, 64, patience());
      if (span.size > 0) net.release(group, socket, 0);
      return span.size;
    };
    const auto by_recv = [&] { return net.recv(group, socket, buffer, 64, kPeek, patience()); };
    note(group, report, 0, by_peek());
    note(group, report, 1, net.send(group, socket, buffer, 1, 0, patience()));
    note(group, report, 2, look_for_64(group, by_peek));
    note(group, report, 3, net.recv(group, socket, buffer, 64, kWaitAll, patience()));
    note(group, report, 4, by_recv());
    note(group, report, 5, net.send(group, socket, buffer, 1, 0, patience()));
    note(group, report, 6, look_for_64(group, by_recv));
  }
};

TYPED_TEST(ZeroCopy, APeekAfterOneThatTookNothingSeesNewBytes) {
  converse(this->party_, this->other_, TypeParam::kLink, LookUntilAllIsThere{this->buffer_.data()},
           SendInTwoParts{this->other_buffer_.data()});
  EXPECT_EQ(this->other_.result(0), 2 * (1 + 1 + 63));
  for (const int looked_at_first : {0, 4}) EXPECT_EQ(this->party_.result(looked_at_first), 1);
  EXPECT_EQ(this->party_.result(2), 64) << "by peek";
  EXPECT_EQ(this->party_.result(6), 64) << "by recv with kPeek";
}

/// Everything one should not do with a reservation; what is sent in the end is "abc".
struct MisuseReservations {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    bool none = net.commit(group, socket, 0) == -EINVAL && net.abort(group, socket) == -EINVAL;
    none = none && net.reserve(group, socket, 0, Deadline::now()).size == -EINVAL;
    Span rest{report, 1};
    none = none && net.reserve(group, socket, std::size_t{0}, rest).size == -EINVAL && rest.size == 0;
    none = none && net.reserve(group, socket, 2 * kRing, rest).size == -EMSGSIZE;
    none = none && net.reserve(group, 12345678, std::size_t{1}, rest).size == -EBADF;
    none = none && net.commit(group, 12345678, 0) == -EBADF && net.reserve(group, -1, 1).size == -EBADF;
    note(group, report, 0, none);
    const Span span = net.reserve(group, socket, 100, patience());
    note(group, report, 1, span.size);
    note(group, report, 2, net.commit(group, socket, 101));
    note(group, report, 3, net.send(group, socket, buffer, 1, 0, patience()));
    const bool busy = net.reserve(group, socket, std::size_t{1}, rest, patience()).size == -EBUSY;
    note(group, report, 4, busy ? net.reserve(group, socket, 1, patience()).size : 0);
    if (group.thread_rank() == 0) {
      for (int i = 0; i < 3; ++i) static_cast<char*>(span.data)[i] = static_cast<char>('a' + i);
    }
    note(group, report, 5, net.commit(group, socket, 3));
    const Span late = net.reserve(group, socket, 100, patience());
    net.shutdown(group, socket, Shutdown::write);
    note(group, report, 1, span.size + (late.size == 100 ? 0 : 1000));
    note(group, report, 4, report->result[4] + (net.commit(group, socket, 1) == -EPIPE ? 0 : 1000));
  }
};

/// Looks at "abc" in every way, and misuses what it sees.
struct LookThenTake {
  std::uint8_t* buffer;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    note(group, report, 0, net.recv(group, socket, buffer, 3, kPeek | kWaitAll, patience()));
    note(group, report, 1, net.recv(group, socket, buffer, 2 * kRing, kPeek | kWaitAll, patience()));
    const Span span = net.peek(group, socket, 2, patience());
    note(group, report, 2, span.size);
    bool busy = net.recv(group, socket, buffer, 1, 0, patience()) == -EBUSY &&
                net.peek(group, socket, 1).size == -EBUSY;
    busy = busy && net.release(group, socket, 3) == -EINVAL && net.release(group, socket, 0) == 0;
    busy = busy && net.release(group, socket, 0) == -EINVAL && net.peek(group, socket, 0).size == -EINVAL;
    note(group, report, 3, busy);
    net.peek(group, socket, 100, patience());
    note(group, report, 4, net.release(group, socket, 1));
    note(group, report, 5, net.recv(group, socket, buffer, 100, kWaitAll, patience()));
    if (group.thread_rank() == 0) report->result[5] += 10 * (buffer[0] == 'b' && buffer[1] == 'c');
  }
};

TYPED_TEST(ZeroCopy, MisuseIsToldAndChangesNothing) {
  converse(this->party_, this->other_, TypeParam::kLink, MisuseReservations{this->buffer_.data()},
           LookThenTake{this->other_buffer_.data()});
  EXPECT_EQ(this->party_.result(0), 1) << "nothing reserved, nothing wanted, no such socket";
  EXPECT_EQ(this->party_.result(1), 100);
  EXPECT_EQ(this->party_.result(2), -EINVAL) << "more than was reserved";
  EXPECT_EQ(this->party_.result(3), -EBUSY) << "send";
  EXPECT_EQ(this->party_.result(4), -EBUSY) << "reserve again; committing after shutdown gives EPIPE";
  EXPECT_EQ(this->party_.result(5), 0);
}

TYPED_TEST(ZeroCopy, LookingConsumesNothing) {
  converse(this->party_, this->other_, TypeParam::kLink, LookThenTake{this->buffer_.data()},
           MisuseReservations{this->other_buffer_.data()});
  EXPECT_EQ(this->party_.result(0), 3) << "kPeek";
  EXPECT_EQ(this->party_.result(1), 3) << "the stream ends before a ring full has come: all there is";
  EXPECT_EQ(this->party_.result(2), 2) << "peek";
  EXPECT_EQ(this->party_.result(3), 1) << "recv and peek while a peek is open; releasing too much, twice, and none";
  EXPECT_EQ(this->party_.result(4), 0);
  EXPECT_EQ(this->party_.result(5), 12) << "two bytes are left, the right ones";
}

/// A socket that is closed while memory of its rings is held.
class HeldMemory : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    listener_ = net_.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=" + name_of(parse_link(GetParam()))), 4,
                            patience());
    ASSERT_EQ(net_.getsockname(listener_, where_), 0);
    where_.link = parse_link(name_of(parse_link(GetParam())));
  }

  /// Connects as soon as a closed socket's slot is back.
  Socket connect() {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    Socket socket = -EMFILE;
    while (socket == -EMFILE && clock_ns() < until_ns) {
      socket = other_net_.connect(this_thread(), where_, patience());
      if (socket == -EMFILE) pause();
    }
    return socket;
  }

  Context context_{zero_copy_options()};
  Context other_{zero_copy_options(1)};
  Net net_ = context_.net();
  Net other_net_ = other_.net();
  Socket listener_ = -1;
  Endpoint where_;
};

TEST_P(HeldMemory, StaysValidAfterCloseAndIsNeverSent) {
  const Socket socket = connect();
  const Socket far = net_.accept(this_thread(), listener_, patience());
  ASSERT_EQ(net_.send(this_thread(), far, "hello", 5, kWaitAll, patience()), 5);
  const Span out = other_net_.reserve(this_thread(), socket, kRing, patience());
  const Span in = other_net_.peek(this_thread(), socket, 5, patience());
  ASSERT_GT(out.size, 0);
  ASSERT_GT(in.size, 0);
  ASSERT_EQ(other_net_.close(this_thread(), socket), 0);
  EXPECT_EQ(other_net_.send(this_thread(), socket, "x", 1), -EBADF);
  EXPECT_EQ(other_net_.connect(this_thread(), where_, patience()), -EMFILE)
      << "the slot is nobody else's before all is given back";
  std::memset(out.data, 'O', static_cast<std::size_t>(out.size));
  EXPECT_EQ(std::memcmp(in.data, "hello", static_cast<std::size_t>(in.size)), 0);
  EXPECT_EQ(other_net_.commit(this_thread(), socket, 1), -EBADF);
  EXPECT_EQ(other_net_.commit(this_thread(), socket, 1), -EBADF) << "twice";
  EXPECT_EQ(other_net_.release(this_thread(), socket, 1), -EBADF);
  char byte = 0;
  const auto end = net_.recv(this_thread(), far, &byte, 1, 0, patience());
  EXPECT_TRUE(end == 0 || end == -ECONNRESET) << end << ": closing with unread input makes TCP reset";
  const Socket next = connect();
  ASSERT_GE(next, 0) << "the slot came back";
  EXPECT_EQ(other_net_.commit(this_thread(), socket, 0), -EBADF) << "an old handle in a slot that is used again";
}

TEST_P(HeldMemory, AHandleThatWasNeverGivenOutEndsNothing) {
  const Socket socket = connect();
  const Socket far = net_.accept(this_thread(), listener_, patience());
  ASSERT_EQ(table::slot_of(socket), 0u) << "where a zeroed handle points";
  const Socket closed = table::make_handle(0, table::next_generation(table::generation_of(socket)));
  for (const Socket wrong : {Socket{0}, closed, Socket{table::kRecordBit}}) {
    EXPECT_EQ(other_net_.abort(this_thread(), wrong), -EBADF) << wrong;
    EXPECT_EQ(other_net_.commit(this_thread(), wrong, 0), -EBADF) << wrong;
    EXPECT_EQ(other_net_.release(this_thread(), wrong, 0), -EBADF) << wrong;
  }
  const Span out = other_net_.reserve(this_thread(), socket, 2, patience());
  ASSERT_EQ(out.size, 2) << "the socket in that slot is as it was";
  EXPECT_EQ(other_net_.abort(this_thread(), 0), -EBADF);
  EXPECT_EQ(other_net_.release(this_thread(), 0, 0), -EBADF);
  std::memcpy(out.data, "ok", 2);
  EXPECT_EQ(other_net_.commit(this_thread(), socket, 2), 0);
  char bytes[2] = {};
  EXPECT_EQ(net_.recv(this_thread(), far, bytes, 2, kWaitAll, patience()), 2);
  EXPECT_EQ(std::string(bytes, 2), "ok");
  EXPECT_EQ(other_net_.close(this_thread(), socket), 0);
  const Socket next = connect();
  EXPECT_GE(next, 0) << "no call is counted in the closed socket, so its slot came back";
}

TEST_P(HeldMemory, AThreadMayCloseWhileAnotherWritesIntoItsReservation) {
  for (int round = 0; round < 200; ++round) {
    const Socket socket = connect();
    ASSERT_GE(socket, 0);
    const Socket far = net_.accept(this_thread(), listener_, patience());
    std::thread writer([&] {
      for (;;) {
        const Span span = other_net_.reserve(this_thread(), socket, 1000, patience());
        if (span.size <= 0) {
          EXPECT_EQ(span.size, -EBADF);
          return;
        }
        std::memset(span.data, 'W', static_cast<std::size_t>(span.size));
        const int result = other_net_.commit(this_thread(), socket, static_cast<std::size_t>(span.size));
        EXPECT_TRUE(result == 0 || result == -EBADF) << result;
      }
    });
    char bytes[500];
    std::int64_t wrong = 0, result = 0;
    for (int reads = 0; (result = net_.recv(this_thread(), far, bytes, sizeof bytes, 0, patience())) > 0; ++reads) {
      for (std::int64_t i = 0; i < result; ++i) wrong += bytes[i] != 'W';
      if (reads == round % 10) {
        EXPECT_EQ(other_net_.close(this_thread(), socket), 0);
      }
    }
    writer.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(result, 0) << "an orderly end, round " << round;
    net_.close(this_thread(), far);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, HeldMemory, testing::Values("tcp", "p2p"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace gpusock::conformance::zero_copy
