// What exchange() and connect_all() promise: two that send before they receive never wait for each other.
#include <gpusock/exchange.cuh>

#include "gpusock/server.cuh"
#include "tests/conformance/party.cuh"
#include "tests/unit/io/plain_all_to_all.cuh"

#include <string>
#include <thread>
#include <vector>

namespace gpusock::conformance::exchanging {
namespace {

constexpr std::size_t kRoom = 60'000;  // of one message: many rings

Options small_rings() {
  Options options;
  options.ring_bytes = 4 << 10;
  options.sockets_max = 16;
  options.connections_max = 8;
  return options;
}

template <class Scope>
class Exchange : public testing::Test {
 protected:
  Party<Scope> one_{small_rings()};
  Party<HostScope> other_{small_rings()};
  Mapped<char> out_{one_.context, kRoom}, in_{one_.context, kRoom};
  Mapped<char> others_out_{other_.context, kRoom}, others_in_{other_.context, kRoom};
};
TYPED_TEST_SUITE(Exchange, KernelScopes, ScopeName);

/// Exchanges messages of these sizes; counts those that came as the peer's `letter`, with the peer's sizes.
struct Messages {
  char *out, *in;
  char letter, others;
  std::size_t largest;
  std::size_t room;
  int count;

  GPUSOCK_FN std::size_t bytes_of(char who, int i) const {
    return i == 0 ? largest : (static_cast<std::size_t>(who) * 131 + static_cast<std::size_t>(i) * 37) % 600 + 1;
  }

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    std::int64_t right = 0, got = 0;
    for (int i = 0; i < count && right == i; ++i) {
      const std::size_t bytes = bytes_of(letter, i);
      for (std::size_t at = group.thread_rank(); at < bytes; at += group.num_threads()) out[at] = letter;
      group.sync();
      got = exchange(group, net, socket, out, bytes, in, room, patience());
      int wrong = got != static_cast<std::int64_t>(bytes_of(others, i));
      for (std::int64_t at = group.thread_rank(); at < got; at += group.num_threads()) wrong += in[at] != others;
      right += detail::sum(group, wrong) == 0;
    }
    note(group, report, 0, right);
    note(group, report, 1, got);
  }
};

TYPED_TEST(Exchange, MessagesLongerThanTheRingsPassEachOther) {
  constexpr int kCount = 20;
  converse(this->one_, this->other_, LinkKind::tcp,
           Messages{this->out_.data(), this->in_.data(), 'a', 'b', kRoom, kRoom, kCount},
           Messages{this->others_out_.data(), this->others_in_.data(), 'b', 'a', kRoom, kRoom, kCount});
  EXPECT_EQ(this->one_.result(0), kCount);
  EXPECT_EQ(this->other_.result(0), kCount);
}

TYPED_TEST(Exchange, AMessageThatIsLongerThanTheRoomIsAnError) {
  converse(this->one_, this->other_, LinkKind::tcp, Messages{this->out_.data(), this->in_.data(), 'a', 'b', 100, 99, 1},
           Messages{this->others_out_.data(), this->others_in_.data(), 'b', 'a', 100, 100, 1});
  EXPECT_EQ(this->one_.result(1), -EMSGSIZE);
  EXPECT_EQ(this->other_.result(0), 1);
}

/// Gets a message that is too long, and asks for another.
struct AskAgain {
  Messages messages;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    messages(group, net, socket, report);
    note(group, report, 2, exchange(group, net, socket, messages.out, 1, messages.in, messages.room, patience()) < 0);
  }
};

TYPED_TEST(Exchange, TheRestOfATooLongMessageIsNoMessage) {
  converse(this->one_, this->other_, LinkKind::tcp,
           AskAgain{{this->out_.data(), this->in_.data(), 'a', 'b', 3000, 99, 1}},
           Messages{this->others_out_.data(), this->others_in_.data(), 'b', 'a', 3000, 3000, 1});
  EXPECT_EQ(this->one_.result(1), -EMSGSIZE);
  EXPECT_EQ(this->one_.result(2), 1) << "an error";
}

/// Ends its direction after one message.
struct OneMessage {
  Messages messages;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    messages(group, net, socket, report);
    net.shutdown(group, socket, Shutdown::write);
    while (net.recv(group, socket, messages.in, messages.room, 0, patience()) > 0) {  // unread input would reset it
    }
  }
};

TYPED_TEST(Exchange, ThePeersEndIsToldFromAMessage) {
  converse(this->one_, this->other_, LinkKind::tcp,
           Messages{this->out_.data(), this->in_.data(), 'a', 'b', 100, kRoom, 2},
           OneMessage{{this->others_out_.data(), this->others_in_.data(), 'b', 'a', 100, kRoom, 1}});
  EXPECT_EQ(this->one_.result(0), 1);
  EXPECT_EQ(this->one_.result(1), -EPIPE);
}

/// Has both exchange messages in records.
template <class One, class Other, class Ours, class Theirs>
void converse_in_records(One& one, Other& other, const Ours& ours, const Theirs& theirs) {
  const Endpoint at = loopback(LinkKind::p2p).with_type(SocketType::seqpacket);
  one.start(Serve<Ours>{at, &one.report(), ours});
  ASSERT_TRUE(one.report().listening.wait());
  other.start(Visit<Theirs>{one.report().where.with_type(SocketType::seqpacket), &other.report(), theirs});
  other.join();
  one.join();
}

TYPED_TEST(Exchange, MessagesLongerThanTheRingsPassEachOtherInRecords) {
  constexpr int kCount = 100;
  converse_in_records(this->one_, this->other_,
                      Messages{this->out_.data(), this->in_.data(), 'a', 'b', kRoom, kRoom, kCount},
                      Messages{this->others_out_.data(), this->others_in_.data(), 'b', 'a', kRoom, kRoom, kCount});
  EXPECT_EQ(this->one_.result(0), kCount);
  EXPECT_EQ(this->other_.result(0), kCount);
}

TYPED_TEST(Exchange, AMessageInRecordsThatIsLongerThanTheRoomIsAnError) {
  converse_in_records(this->one_, this->other_,
                      AskAgain{{this->out_.data(), this->in_.data(), 'a', 'b', 3000, 2999, 1}},
                      Messages{this->others_out_.data(), this->others_in_.data(), 'b', 'a', 3000, 3000, 1});
  EXPECT_EQ(this->one_.result(1), -EMSGSIZE);
  EXPECT_EQ(this->one_.result(2), 1) << "an error";
}

/// Sends records that are no message; notes how that of the other is received.
struct WrongRecords {
  char* bytes;
  std::size_t count;  ///< of the last one
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report*) {
    for (std::size_t at = group.thread_rank(); at < count; at += group.num_threads()) bytes[at] = at == 7 ? 2 : 0;
    group.sync();
    net.send(group, socket, bytes, count, 0, patience());  // a length of 2, and count - 8 bytes
    while (net.recv(group, socket, bytes, kRoom, 0, patience()) > 0) {
    }
  }
};

TYPED_TEST(Exchange, ARecordWithoutALengthIsAnError) {
  converse_in_records(this->one_, this->other_, Messages{this->out_.data(), this->in_.data(), 'a', 'b', 10, kRoom, 1},
                      WrongRecords{this->others_out_.data(), 7});
  EXPECT_EQ(this->one_.result(1), -EPROTO);
}

TYPED_TEST(Exchange, ARecordLongerThanItsMessageIsAnError) {
  converse_in_records(this->one_, this->other_, Messages{this->out_.data(), this->in_.data(), 'a', 'b', 10, kRoom, 1},
                      WrongRecords{this->others_out_.data(), 11});
  EXPECT_EQ(this->one_.result(1), -EPROTO);
}

/// A rank on a host thread: connects with all others, and sends each its number.
struct Rank {
  Context context{from_environment(small_rings())};
  Socket listener = -1;
  Endpoint where;
  int error = 0;
  int right = 0;

  void listen() {
    listener = Net(context.net()).listen(this_thread(), loopback(LinkKind::tcp), 16, patience());
    Net(context.net()).getsockname(listener, where);
  }
  void meet(const std::vector<Endpoint>& all, std::uint32_t own) {
    const Net net = context.net();
    std::vector<Socket> sockets(all.size());
    const auto ranks = static_cast<std::uint32_t>(all.size());
    error = connect_all(net, listener, all.data(), own, ranks, sockets.data(), patience());
    for (std::uint32_t peer = 0; peer < ranks && error == 0; ++peer) {
      if (peer == own) continue;
      std::uint32_t theirs = ranks;
      const auto got = exchange(this_thread(), net, sockets[peer], &own, sizeof own, &theirs, sizeof theirs,
                                patience());
      right += got == sizeof theirs && theirs == peer;
      net.close(this_thread(), sockets[peer]);
    }
  }
};

TEST(Ranks, MeetWhoeverElseKnocks) {
  constexpr std::uint32_t kRanks = 3;
  Rank ranks[kRanks];
  std::vector<Endpoint> all;
  for (Rank& rank : ranks) {
    rank.listen();
    ASSERT_GE(rank.listener, 0);
    all.push_back(rank.where);
  }
  // A stranger who says that it is rank 9, and one who hangs up.
  Context context(from_environment(small_rings()));
  const Net net = context.net();
  const std::uint32_t nine = 9;
  const Socket stranger = net.connect(this_thread(), all[0], patience());
  ASSERT_GE(stranger, 0);
  net.send(this_thread(), stranger, &nine, sizeof nine, kWaitAll, patience());
  net.close(this_thread(), net.connect(this_thread(), all[1], patience()));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] { ranks[rank].meet(all, rank); });
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    EXPECT_EQ(rank.error, 0);
    EXPECT_EQ(rank.right, static_cast<int>(kRanks - 1));
  }
  char byte = 0;
  EXPECT_LE(net.recv(this_thread(), stranger, &byte, 1, 0, patience()), 0) << "it was sent away";
}

TEST(Ranks, SayWhichOneHasNotCome) {
  Rank rank;
  rank.listen();
  ASSERT_GE(rank.listener, 0);
  const std::vector<Endpoint> all{rank.where, rank.where};
  Socket sockets[2];
  EXPECT_EQ(connect_all(rank.context.net(), rank.listener, all.data(), 0, 2, sockets, Deadline::after_ns(1'000'000)),
            -ETIMEDOUT);
  EXPECT_EQ(sockets[0], -1);
  EXPECT_EQ(sockets[1], -ETIMEDOUT);
}

TEST(Ranks, DoNotWaitForEverForOneThatDoesNotListen) {
  Options options = small_rings();
  options.timeout_ns = 1'000'000;
  Context context(from_environment(options));
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), loopback(LinkKind::tcp), 16, patience());
  const Socket closed = net.listen(this_thread(), loopback(LinkKind::tcp), 16, patience());
  Endpoint all[2];
  net.getsockname(closed, all[0]);
  net.getsockname(listener, all[1]);
  net.close(this_thread(), closed);
  Socket sockets[2];
  const int error = connect_all(net, listener, all, 1, 2, sockets, Deadline::by_default());
  EXPECT_TRUE(error == -ECONNREFUSED || error == -ETIMEDOUT) << error;  // -ETIMEDOUT: the last try was not answered
}

/// Sends and receives at the same time, with no deadline of its own, what the peer never answers.
struct ExchangeWithNobody {
  char* bytes;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report* report) {
    net.setsockopt(group, socket, SocketOption::receive_timeout_ns, 1'000'000);
    note(group, report, 0, exchange(group, net, socket, bytes, 5, bytes, kRoom));
  }
};

/// Says nothing.
struct ReceiveToTheEnd {
  char* bytes;
  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net, Socket socket, Report*) {
    while (net.recv(group, socket, bytes, kRoom, 0, patience()) > 0) {
    }
  }
};

TYPED_TEST(Exchange, WithoutADeadlineItHasTheSocketsTimeouts) {
  const std::uint64_t began_ns = clock_ns();  // the context's own timeout is a minute
  converse(this->one_, this->other_, LinkKind::tcp, ExchangeWithNobody{this->out_.data()},
           ReceiveToTheEnd{this->others_in_.data()});
  EXPECT_EQ(this->one_.result(0), -ETIMEDOUT);
  EXPECT_LT(clock_ns() - began_ns, kPatienceNs);
}

/// A rank of all to all by plain calls, in kernels.
struct PlainRank {
  Context context{from_environment({})};
  Mapped<Endpoint> peers{context, 3};
  Mapped<Socket> sockets{context, 3};
  Mapped<std::uint64_t> out{context, 3 * kWords}, in{context, 3 * kWords};
  Mapped<std::int32_t> failed{context, 3};
  Listener listener = open_listener(context, loopback(LinkKind::tcp).with_type(SocketType::seqpacket));

  static constexpr std::uint64_t kWords = 5000;  // several records

  void exchange_with(const std::vector<Endpoint>& all, unsigned own, std::uint64_t timeout_ns) {
    const auto ranks = static_cast<unsigned>(all.size());
    std::copy(all.begin(), all.end(), peers.begin());
    for (std::size_t i = 0; i < ranks * kWords; ++i) out[i] = own << 24 | i;
    const plain::Rank rank{context.net(), own,          ranks,           kWords,
                           timeout_ns,    peers.data(), listener.socket, sockets.data(),
                           out.data(),    in.data(),    failed.data()};
    launch(context, {}, plain::meet_all, rank);
    launch(context, {.grid = ranks, .block = 32}, plain::exchange_all, rank);
    context.synchronize();
  }
};

TEST(PlainRanks, ExchangeAsThoseOfTheExample) {
  PlainRank ranks[3];
  std::vector<Endpoint> all;
  for (const PlainRank& rank : ranks) all.push_back(rank.listener.where);
  std::vector<std::thread> threads;
  for (unsigned own = 0; own < 3; ++own)
    threads.emplace_back([&, own] { ranks[own].exchange_with(all, own, 60'000'000'000); });
  for (std::thread& thread : threads) thread.join();
  for (unsigned own = 0; own < 3; ++own) {
    for (unsigned peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(ranks[own].failed[peer], 0) << own << " with " << peer;
      for (std::uint64_t i = 0; i < PlainRank::kWords && peer != own; ++i)
        ASSERT_EQ(ranks[own].in[peer * PlainRank::kWords + i], peer << 24 | (own * PlainRank::kWords + i));
    }
  }
}

TEST(PlainRanks, SayWhichOneHasNotCome) {
  PlainRank rank;
  rank.exchange_with({rank.listener.where, rank.listener.where}, 0, 1'000'000);
  EXPECT_EQ(rank.failed[0], 0);
  EXPECT_EQ(rank.failed[1], -ETIMEDOUT);
}

}  // namespace
}  // namespace gpusock::conformance::exchanging
