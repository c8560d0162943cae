// What serve() promises, in each scope: each client gets its answers in their order, whatever the others do.
#include "tests/unit/io/served.cuh"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace gpusock::conformance::server {
namespace {

TYPED_TEST_SUITE(Server, KernelScopes, ScopeName);

TYPED_TEST(Server, EachClientHasAStateOfItsOwn) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor first(clients, this->where()), second(clients, this->where());
  EXPECT_EQ(first.ask("add 2"), "2");
  EXPECT_EQ(second.ask("add 30"), "30");
  EXPECT_EQ(first.ask("add 3"), "5");
  EXPECT_EQ(second.ask("add -1"), "29");
  for (const char* part : {"a", "dd 1", "0\r"}) first.say(part);
  EXPECT_EQ(first.ask(""), "15") << "a line that came in pieces";
  EXPECT_EQ(first.ask("bye"), "bye");
  EXPECT_EQ(first.hear(), "end");
  EXPECT_EQ(second.ask("add 1"), "30");
}

TYPED_TEST(Server, AClientMayAskMuchAtOnceAndEndItsSide) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor client(clients, this->where());
  constexpr int kRequests = 300;
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += "add 1\n";
  ASSERT_TRUE(client.say(all));
  client.end();
  for (int i = 1; i <= kRequests; ++i) ASSERT_EQ(client.hear(), std::to_string(i));
  EXPECT_EQ(client.hear(), "end");
}

TYPED_TEST(Server, MoreClientsThanSeatsWaitForOne) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  auto seated = take_seats(clients, this->where());
  Visitor late(clients, this->where()), later(clients, this->where());
  ASSERT_TRUE(late.say("add 5\n"));
  ASSERT_TRUE(later.say("add 6\n"));
  seated[1].reset();
  EXPECT_EQ(late.hear(), "5");
  EXPECT_EQ(seated[0]->ask("bye"), "bye");
  seated[0].reset();
  EXPECT_EQ(later.hear(), "6");
  EXPECT_EQ(seated[3]->ask("add 1"), "2");
}

TYPED_TEST(Server, WhereAllSeatsAreTakenTheLongestIdleMakesRoom) {
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 1;
  this->start(limits);
  Clients& clients = this->clients_;
  const auto seated = take_seats(clients, this->where());
  EXPECT_EQ(seated[0]->ask("add 1"), "2") << "so the second is idle for longest";
  Visitor late(clients, this->where());
  EXPECT_EQ(late.ask("add 7"), "7");
  EXPECT_EQ(seated[1]->hear(), "end");
  for (const int stays : {0, 2, 3}) EXPECT_NE(seated[stays]->ask("add 1"), "end");
}

TYPED_TEST(Server, ADisplacedClientIsToldOfAtOnceAlsoWhereItsSuccessorIsSilent) {
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 1;
  this->start(limits);
  Clients& clients = this->clients_;
  std::vector<std::unique_ptr<Visitor>> visitors;
  for (unsigned i = 0; i < kGroups * kSeats; ++i) {
    visitors.push_back(std::make_unique<Visitor>(clients, this->where()));
    EXPECT_EQ(visitors.back()->ask("add 1" + std::string(i, '0')), "1" + std::string(i, '0'));
  }
  for (const std::uint64_t displaced : {1u, 2u}) {  // one of each group
    visitors.push_back(std::make_unique<Visitor>(clients, this->where()));
    EXPECT_EQ(this->left(Leave::displaced, displaced), displaced);
  }
  EXPECT_EQ(this->left_total(), 11u) << "of the two that were idle for longest";
  EXPECT_EQ(this->left(Leave::handled, 0) + this->left(Leave::slow, 0) + this->left(Leave::failed, 0), 0u);
}

TYPED_TEST(Server, ADisplacedClientWhoseRequestIsBeingHandledIsSaidToBeDisplaced) {
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 1;
  this->start(limits);
  Clients& clients = this->clients_;
  std::vector<std::unique_ptr<Visitor>> visitors;
  for (unsigned i = 0; i < kGroups * kSeats; ++i) {
    visitors.push_back(std::make_unique<Visitor>(clients, this->where()));
    // Group 0 accepts, so it must not hold: a visitor of group 1 comes first.
    if (visitors.back()->ask("group") == "1") std::swap(visitors.front(), visitors.back());
  }
  for (auto& visitor : visitors) EXPECT_EQ(visitor->ask("add 1"), "1");  // idle for longest: the first, then the second
  visitors[0]->say("hold\n");
  EXPECT_TRUE(this->holds());
  Visitor one(clients, this->where()), other(clients, this->where());
  EXPECT_EQ(visitors[1]->hear(), "end") << "for the second of the two that came, so the first has a seat already";
  this->let_go_on();
  EXPECT_EQ(this->left(Leave::displaced, 2), 2u);
  EXPECT_EQ(one.ask("add 7"), "7");
  EXPECT_EQ(this->left(Leave::failed, 0) + this->left(Leave::handled, 0), 0u);
}

TYPED_TEST(Server, EachClientThatLeavesIsToldOfOnceAndWhy) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits);
  Clients& clients = this->clients_;
  Visitor stays(clients, this->where());
  EXPECT_EQ(stays.ask("add 1000"), "1000");
  {
    Visitor polite(clients, this->where()), slow(clients, this->where()), gone(clients, this->where());
    EXPECT_EQ(polite.ask("add 1"), "1");
    EXPECT_EQ(polite.ask("bye"), "bye");
    EXPECT_EQ(polite.hear(), "end");
    EXPECT_EQ(slow.ask("add 10"), "10");
    slow.say("add");
    EXPECT_EQ(slow.hear(), "end");
    EXPECT_EQ(gone.ask("add 100"), "100");
  }
  EXPECT_EQ(this->left(Leave::handled, 2), 2u) << "those that ended";
  EXPECT_EQ(this->left(Leave::slow, 1), 1u);
  EXPECT_EQ(this->left_total(), 111u);
  EXPECT_EQ(stays.ask("close"), "close");
  this->cancel();
  this->expect_end();
  EXPECT_EQ(this->left(Leave::ended, 1), 1u);
  EXPECT_EQ(this->left_total(), 1111u);
  EXPECT_EQ(this->left(Leave::displaced, 0) + this->left(Leave::failed, 0), 0u);
}

TYPED_TEST(Server, ClosingItsListenerKeepsItsClientsAndEndsItAfterThem) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  {
    const auto seated = take_seats(clients, this->where(), 3);  // in both groups
    EXPECT_EQ(seated[0]->ask("close"), "close");
    EXPECT_EQ(Visitor(clients, this->where()).hear(), "ECONNREFUSED");
    for (int sum = 2; sum < 4; ++sum) {
      for (auto& visitor : seated) EXPECT_EQ(visitor->ask("add 1"), std::to_string(sum));
    }
    EXPECT_EQ(seated[1]->ask("bye"), "bye");
    EXPECT_EQ(seated[2]->ask("add 1"), "4");
  }
  this->expect_end();
  EXPECT_EQ(this->left(Leave::handled, 3), 3u);
}

TYPED_TEST(Server, ItsListenerMayBeClosedWhileAllSeatsAreTaken) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  {
    const auto seated = take_seats(clients, this->where());
    Visitor waits(clients, this->where());
    EXPECT_EQ(seated.back()->ask("close"), "close");
    EXPECT_EQ(waits.hear(), "ECONNRESET") << "nobody will accept it";
    for (auto& visitor : seated) EXPECT_EQ(visitor->ask("add 1"), "2");
  }
  this->expect_end();
}

TYPED_TEST(Server, ASecondGroupWithANumberOfOneThatServesIsRefusedAndHarmsNobody) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  std::vector<std::unique_ptr<Visitor>> seated;  // in both groups
  for (int i = 0; i < 3; ++i) {
    seated.push_back(std::make_unique<Visitor>(clients, this->where()));
    EXPECT_EQ(seated.back()->ask("add 1"), "1");
  }
  for (const unsigned own : {0u, 1u}) {
    EXPECT_EQ(this->serve_again(1, own), -EBUSY) << own;
    for (auto& visitor : seated) EXPECT_EQ(visitor->ask("add 1"), std::to_string(own + 2));
  }
  EXPECT_EQ(Visitor(clients, this->where()).ask("add 1"), "1");
}

TYPED_TEST(Server, SeatsOfAServerThatHasEndedAreRefused) {
  this->start(no_limits());
  EXPECT_EQ(Visitor(this->clients_, this->where()).ask("close"), "close");
  this->expect_end();
  for (const unsigned own : {1u, 0u}) EXPECT_EQ(this->serve_again(1, own), -EALREADY) << own;
}

TYPED_TEST(Server, AHandlerThatWaitsForMoreAndDoesNotReadOnLosesItsClient) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor in_pieces(clients, this->where()), too_long(clients, this->where()), ended(clients, this->where());
  for (Visitor* client : {&in_pieces, &too_long, &ended}) EXPECT_EQ(client->ask("stubborn"), "stubborn");
  EXPECT_TRUE(in_pieces.say("ad"));
  EXPECT_TRUE(too_long.say(std::string(3 * kLine, 'x')));
  EXPECT_EQ(too_long.hear(), "end");
  EXPECT_TRUE(ended.say("add"));
  ended.end();
  EXPECT_EQ(ended.hear(), "end");
  too_long.end();
  EXPECT_EQ(this->left(Leave::unfinished, 2), 2u);
  EXPECT_EQ(in_pieces.ask("d 5"), "5") << "who is only slow stays";
}

TYPED_TEST(Server, AGroupThatNeverBeginsKeepsNoClientWaiting) {
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 1;
  limits.group_start_ns = 1;
  this->start(limits, 1, 1);
  Clients& clients = this->clients_;
  Visitor first(clients, this->where()), second(clients, this->where());
  EXPECT_EQ(first.ask("add 1"), "1");
  EXPECT_EQ(second.ask("add 1"), "1");
  Visitor late(clients, this->where());
  EXPECT_EQ(late.ask("add 7"), "7");
  EXPECT_EQ(first.hear(), "end") << "which was idle for longest";
}

TYPED_TEST(Server, WhoIsSentAwayByTheLastRequestOfATurnGetsItsEndAtOnce) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  for (const int before : {14, 15, 16, 31}) {  // the group has turns of 16 requests
    Visitor client(clients, this->where());
    std::string all;
    for (int i = 0; i < before; ++i) all += "add 1\n";
    ASSERT_TRUE(client.say(all + "bye\n"));
    for (int i = 1; i <= before; ++i) ASSERT_EQ(client.hear(), std::to_string(i));
    EXPECT_EQ(client.hear(), "bye");
    EXPECT_EQ(client.hear(), "end") << before;
  }
}

TEST(Listeners, SayWhyTheyAreNotOpen) {
  Context context(from_environment(small_rings()));
  const Listener first = open_listener(context, loopback(LinkKind::tcp));
  EXPECT_GE(first.socket, 0);
  try {
    open_listener(context, first.where);
    ADD_FAILURE() << "two listeners have one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.code().value(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find(first.where.to_string()), std::string::npos) << error.what();
  }
}

TYPED_TEST(Server, RecordsAreRefusedBeforeAClientComes) {
  Context context(from_environment(small_rings()));
  Mapped<Served> served(context, 1);
  DeviceBuffer<Memory> memory(context, 1);
  auto at = loopback(LinkKind::tcp);
  at.link = LinkKind::automatic;
  at.type = SocketType::seqpacket;
  served[0].listener = open_listener(context, at);
  launch(context, {.grid = 1, .block = TypeParam::kThreads}, serve_all<TypeParam>, context.net(), served.data(),
         memory.data(), 1u, 0u, static_cast<const char*>(nullptr), ServerLimits());
  context.synchronize();
  EXPECT_EQ(served[0].result[0], -EPROTOTYPE);
  this->start(ServerLimits());
}

/// Takes the listener, so that a server cannot have it.
__global__ void watch_elsewhere(Net net, Socket listener) {
  const PollSet set = net.open_set(this_thread());
  net.watch(this_thread(), set, listener, kPollIn);
}

/// Runs group 1 of a server, and group 0, which fails, if it is to run. Returns what the two return.
template <class Scope>
std::pair<int, int> ends_of(bool runs_first, const ServerLimits& limits) {
  Context context(from_environment(small_rings()));
  Mapped<Served> served(context, 1);
  DeviceBuffer<Memory> memory(context, kGroups);
  Stream streams[2]{Stream(context), Stream(context)};
  served[0].listener = open_listener(context, loopback(LinkKind::tcp));
  launch(context, {}, watch_elsewhere, context.net(), served[0].listener.socket);
  context.synchronize();
  for (const unsigned own : {1u, 0u}) {
    if (own == 0 && !runs_first) continue;
    launch(context, {.grid = 1, .block = Scope::kThreads, .stream = &streams[own]}, serve_all<Scope>, context.net(),
           served.data(), memory.data(), 2u, own, static_cast<const char*>(nullptr), limits);
  }
  for (Stream& stream : streams) stream.synchronize();
  return {served[0].result[0], served[0].result[1]};
}

template <class Scope>
class Groups : public testing::Test {};
TYPED_TEST_SUITE(Groups, KernelScopes, ScopeName);

TYPED_TEST(Groups, WhereTheGroupThatAcceptsNeverBeginsTheOthersEnd) {
  ServerLimits limits = no_limits();
  limits.group_start_ns = 1;
  EXPECT_EQ(ends_of<TypeParam>(false, limits), std::pair(0, -ETIMEDOUT));
}

TYPED_TEST(Groups, AnIdleTimeoutThatCannotBeIsAnError) {
  constexpr std::uint64_t kDayNs = 86'400'000'000'000;
  for (const std::uint64_t idle_ns : {std::uint64_t{0}, 13 * kDayNs, ~std::uint64_t{0} - 1}) {
    ServerLimits limits = no_limits();
    limits.idle_timeout_ns = idle_ns;
    EXPECT_EQ(ends_of<TypeParam>(true, limits), std::pair(-EINVAL, -EINVAL)) << idle_ns;
  }
}

TYPED_TEST(Groups, WhereTheGroupThatAcceptsFailsTheOthersEnd) {
  EXPECT_EQ(ends_of<TypeParam>(true, no_limits()), std::pair(-EBUSY, -ESHUTDOWN));
}

TYPED_TEST(Server, ARequestThatIsTooLongIsAnsweredAndIsTheLast) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor client(clients, this->where());
  client.say(std::string(3 * kLine, 'x'));
  EXPECT_EQ(client.hear(), "too long");
  EXPECT_EQ(client.hear(), "end") << "what it has sent after that does not reset the connection";
}

TYPED_TEST(Server, ARequestThatIsNotFinishedInTimeEndsTheConnection) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits);
  Clients& clients = this->clients_;
  Visitor idle(clients, this->where()), slow(clients, this->where());
  EXPECT_EQ(idle.ask("add 1"), "1");
  slow.say("add 1\nadd");
  EXPECT_EQ(slow.hear(), "1");
  EXPECT_EQ(slow.hear(), "end");
  EXPECT_EQ(idle.ask("add 1"), "2") << "who has not begun a request may be silent";
}

TYPED_TEST(Server, WhoDoesNotTakeItsAnswersKeepsNobodyFromTheServer) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits);
  Clients& clients = this->clients_;
  Visitor deaf(clients, this->where()), other(clients, this->where());
  std::string many;
  for (int i = 0; i < 100; ++i) many += "long\n";
  bool sent = true;
  for (int i = 0; i < 10'000 && sent; ++i) {
    sent = deaf.say(many);
    if (i % 64 == 0) {
      EXPECT_EQ(other.ask("add 0"), "0");
    }
  }
  EXPECT_FALSE(sent) << "its connection ends";
  EXPECT_EQ(other.ask("add 1"), "1");
}

TYPED_TEST(Server, AnIdleClientIsResetWhereItMayNotBe) {
  ServerLimits limits = no_limits();
  limits.idle_timeout_ns = 10'000'000;
  this->start(limits);
  Clients& clients = this->clients_;
  Visitor client(clients, this->where());
  EXPECT_EQ(client.hear(), "ECONNRESET");
}

/// A TCP client of the operating system, which keeps no rules.
class Stranger {
 public:
  explicit Stranger(const Endpoint& to) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool connected() const { return connected_; }
  /// What the system takes at once.
  void say(const std::string& words) { send(fd_, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL); }
  void end() { shutdown(fd_, SHUT_WR); }
  /// Closing will reset the connection.
  void be_rude() {
    const linger at_once{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  int fd_;
  bool connected_ = false;
};

constexpr int kNewAtATime = 50;  // fewer than the backlog

TYPED_TEST(Server, IdleClientsByTheThousandKeepNobodyOut) {
  const char* const asked = std::getenv("GPUSOCK_TEST_IDLE");
  const int count = asked != nullptr ? std::atoi(asked) : 100;
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < static_cast<rlim_t>(count) + 200) GTEST_SKIP() << "needs more descriptors (ulimit -Hn)";
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 0;
  this->start(limits);
  Clients& clients = this->clients_;
  std::deque<Stranger> idle;
  for (int i = 1; i <= count; ++i) {
    ASSERT_TRUE(idle.emplace_back(this->where()).connected());
    if (i % kNewAtATime != 0) continue;
    Visitor active(clients, this->where());
    ASSERT_EQ(active.ask("add 7"), "7") << i;
    ASSERT_EQ(active.ask("add 1"), "8") << i;
  }
}

TYPED_TEST(Server, WhateverStrangersDoOthersAreServed) {
  ServerLimits limits = no_limits();
  limits.displace_after_ns = 0;
  limits.farewell_ns = 1'000'000;
  this->start(limits);
  Clients& clients = this->clients_;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> words = {"",
                                          "a",
                                          "add 1\n",
                                          "add",
                                          "bye\n",
                                          "bye\nadd 1\n",
                                          "long\nlo",
                                          "\n\n",
                                          "tell x\n",
                                          "add 1\r\nad",
                                          "\0\xff\n",
                                          std::string(kLine, 'x'),
                                          std::string(9 * kLine, '\n')};
  std::deque<Stranger> strangers;
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < kNewAtATime; ++i) {
      Stranger& stranger = strangers.emplace_back(this->where());
      ASSERT_TRUE(stranger.connected());
      for (unsigned n = random() % 4; n > 0; --n) stranger.say(words[random() % words.size()]);
      if (random() % 2 == 0) stranger.be_rude();
      if (random() % 3 == 0) stranger.end();
      if (random() % 2 == 0) strangers.pop_back();
    }
    Visitor good(clients, this->where());
    for (const auto& [words_to_say, answer] : {std::pair{"add 2\n", "2"}, std::pair{"add 3\n", "5"}}) {
      ASSERT_TRUE(good.say(words_to_say)) << turn;
      std::string heard = good.hear();
      while (heard == "x") heard = good.hear();  // what strangers tell all
      ASSERT_EQ(heard, answer) << turn;
    }
    while (strangers.size() > kNewAtATime / 2) strangers.pop_front();
  }
}

}  // namespace
}  // namespace gpusock::conformance::server
