// What serve() promises, in each scope: each client gets its answers in their order, whatever the others do.
#include <gpusock/server.cuh>

#include "tests/conformance/party.cuh"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace gpusock::conformance::server {
namespace {

constexpr unsigned kGroups = 2, kSeats = 2;  // of each group
constexpr std::size_t kLine = 64, kLong = 16 << 10;
constexpr std::size_t kRing = 4 << 10, kFlood = kRing + 2000;

struct Sum {
  std::int64_t total;
  bool stubborn;
};
using Memory = Seats<kSeats, kLine, kLong + 1, Sum>;

Options small_rings() {
  Options options;
  options.ring_bytes = kRing;
  options.sockets_max = 32;
  options.connections_max = 16;
  return options;
}

/// "add N": the sum of this client's numbers. "long": kLong zeros. "tell": to all. "some": to those with a sum.
/// "frame": adds 1, and tells those with a sum; its own client gets "begin" before that, and "end" after it.
/// "flood": kFlood zeros to those with a sum. "group": its number. "hold": waits until the test says so. "close": no
/// client comes any more. "bye": the last answer. "stubborn": from now on the handler wants more of a request, whatever
/// keeps it from reading on.
template <class Group>
struct Answer {
  Group group;
  const char* zeros;
  const Net& net;
  Socket listener;
  std::uint64_t& may_go_on;
  std::uint64_t& holds;
  unsigned own;  ///< the group's number

  template <class AnyClient>
  GPUSOCK_FN int operator()(AnyClient& client) const {
    const Received line = client.reader.line(Deadline::now());
    if (!line && client.state.stubborn) return -EAGAIN;
    if (line.size == -EMSGSIZE) client.writer << "too long\n";
    if (!line) return line.error();
    Text rest = line.text();
    const Text command = take_word(rest);
    std::int64_t number = 0;
    if (same(command, "add") && parse_number(rest, number)) {
      client.writer << add(client.state, number) << '\n';
    } else if (same(command, "long")) {
      client.writer << Text{zeros, kLong} << '\n';
    } else if (same(command, "tell")) {
      client.tell_all([rest](auto& writer) { writer << rest << '\n'; });
    } else if (same(command, "flood")) {
      client.tell_all([this](auto& writer, const Sum& sum) {
        if (sum.total != 0) writer << Text{zeros, kFlood};
      });
    } else if (same(command, "group")) {
      client.writer << own << '\n';
    } else if (same(command, "hold")) {
      const std::uint64_t until_ns = clock_ns() + kPatienceNs;
      if (group.thread_rank() == 0) detail::SystemRef(holds).store(1, ringbuf::kRelease);
      while (detail::SystemRef(may_go_on).load(ringbuf::kAcquire) == 0 && clock_ns() < until_ns) conformance::pause();
    } else if (same(command, "some")) {
      tell_some(client, rest);
    } else if (same(command, "frame")) {
      add(client.state, 1);
      client.writer << "begin\n";
      tell_some(client, rest);
      client.writer << "end\n";
    } else {
      if (same(command, "close")) net.close(group, listener);
      group.sync();  // all have read it
      if (group.thread_rank() == 0 && same(command, "stubborn")) client.state.stubborn = true;
      group.sync();
      client.writer << command << '\n';
    }
    return same(command, "bye") ? -EPIPE : 0;
  }

  GPUSOCK_FN std::int64_t add(Sum& sum, std::int64_t number) const {
    const std::int64_t total = sum.total + number;
    group.sync();  // all have read it
    if (group.thread_rank() == 0) sum.total = total;
    group.sync();
    return total;
  }
  template <class AnyClient>
  GPUSOCK_FN static void tell_some(AnyClient& client, Text words) {
    client.tell_all([&words](auto& writer, const Sum& sum) {
      if (sum.total != 0) writer << words << '\n';
    });
  }
};

constexpr std::size_t kReasons = static_cast<std::size_t>(Leave::ended) + 1;

struct Served {
  Listener listener;
  int result[kGroups];
  std::uint64_t left[kReasons];  ///< how many clients
  std::uint64_t left_total;      ///< the sum of their sums
  std::uint64_t may_go_on;       ///< a handler that holds waits for this
  std::uint64_t holds;           ///< one does
};

struct CountDepartures {
  Served* served;

  GPUSOCK_FN void operator()(const Departure<Sum>& client) const {
    detail::SystemRef(served->left_total).fetch_add(static_cast<std::uint64_t>(client.state.total), ringbuf::kRelaxed);
    detail::SystemRef(served->left[static_cast<std::size_t>(client.why)]).fetch_add(1, ringbuf::kRelease);
  }
};

/// `first`: the number of the first group.
template <class Scope>
__global__ void serve_all(Net net, Served* served, Memory* memory, unsigned count, unsigned first, const char* zeros,
                          ServerLimits limits) {
  const auto group = Scope::group();
  const unsigned own = first + blockIdx.x;
  const int result = serve(group, net, served->listener.socket, memory, count, own, limits,
                           Answer<decltype(Scope::group())>{group, zeros, net, served->listener.socket,
                                                            served->may_go_on, served->holds, own},
                           CountDepartures{served});
  if (group.thread_rank() == 0) served->result[own] = result;
}

ServerLimits no_limits() {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  return {kNone, kNone, kNone, kNone, kNone};
}

/// The clients' context.
struct Clients {
  Context context{from_environment(small_rings())};
  Net net = context.net();
};

/// A server of four seats, in two groups.
template <class Scope>
class Server : public testing::Test {
 protected:
  /// `absent`: how many of the server's groups never begin.
  void start(const ServerLimits& limits, unsigned groups = kGroups, unsigned absent = 0,
             LinkKind link = LinkKind::tcp) {
    served_[0].listener = open_listener(context_, loopback(link));
    for (unsigned i = 0; i < groups; ++i) served_[0].result[i] = 1;
    launch(context_, {.grid = groups, .block = Scope::kThreads}, serve_all<Scope>, context_.net(), served_.data(),
           memory_.data(), groups + absent, 0u, zeros_.data(), limits);
  }
  void TearDown() override {
    context_.cancel();
    expect_end();
  }
  void expect_end() {
    context_.synchronize();
    for (const int result : served_[0].result) EXPECT_EQ(result, 0);
  }
  /// How many clients have left for this reason, once these are so many.
  std::uint64_t left(Leave why, std::uint64_t awaited) {
    return once(served_[0].left[static_cast<std::size_t>(why)], awaited);
  }
  bool holds() { return once(served_[0].holds, 1) != 0; }
  std::uint64_t left_total() { return detail::SystemRef(served_[0].left_total).load(ringbuf::kAcquire); }

  /// A group that was absent begins.
  void begin_absent(unsigned own) {
    launch(context_, {.grid = 1, .block = Scope::kThreads, .stream = &stream_}, serve_all<Scope>, context_.net(),
           served_.data(), memory_.data(), kGroups, own, zeros_.data(), no_limits());
  }

  /// Serves with seats that groups have used or use, as the groups from `first` on. What the first of them returns.
  int serve_again(unsigned groups, unsigned first) {
    again_[0].listener = served_[0].listener;
    launch(context_, {.grid = groups, .block = Scope::kThreads, .stream = &stream_}, serve_all<Scope>, context_.net(),
           again_.data(), memory_.data(), kGroups, first, zeros_.data(), no_limits());
    stream_.synchronize();
    return again_[0].result[first];
  }

  void let_go_on() { detail::SystemRef(served_[0].may_go_on).store(1, ringbuf::kRelease); }
  void cancel() { context_.cancel(); }
  const Endpoint& where() { return served_[0].listener.where; }

  static std::uint64_t once(std::uint64_t& counter, std::uint64_t awaited) {
    detail::SystemRef word(counter);
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    while (word.load(ringbuf::kAcquire) < awaited && clock_ns() < until_ns) conformance::pause();
    return word.load(ringbuf::kAcquire);
  }

  Clients clients_;  // before the server's kernels run: a GPU makes no memory beside them

 private:
  Context context_{from_environment(small_rings())};
  Mapped<Served> served_{context_, 1}, again_{context_, 1};
  Stream stream_{context_};
  DeviceBuffer<Memory> memory_{context_, kGroups};
  DeviceBuffer<char> zeros_{context_, kLong};
};
TYPED_TEST_SUITE(Server, KernelScopes, ScopeName);

/// A client, on a host thread.
class Visitor {
 public:
  Visitor(Clients& clients, const Endpoint& to) : net_(clients.net), socket_(net_.connect(me_, to, patience())) {}
  ~Visitor() { net_.close(me_, socket_); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  bool say(const std::string& words) {
    return net_.send(me_, socket_, words.data(), words.size(), kWaitAll, patience()) >= 0;
  }
  void end() { net_.shutdown(me_, socket_, Shutdown::write); }
  /// The next line; "end" and the errors' names stand for themselves.
  std::string hear() {
    const Received line = socket_ < 0 ? Received{nullptr, socket_} : reader_.line(patience());  // or why it is not open
    if (line) return {line.data, static_cast<std::size_t>(line.size)};
    if (line.ended()) return "end";
    const Text name = error_name(line.size);
    return {name.data, name.bytes};
  }
  /// Whether so many bytes have come. They do not pass through the Reader, which holds none between lines.
  bool take(std::size_t bytes) {
    std::vector<char> taken(bytes);
    return net_.recv(me_, socket_, taken.data(), bytes, kWaitAll, patience()) == static_cast<std::int64_t>(bytes);
  }
  std::string ask(const std::string& line) { return say(line + "\n") ? hear() : "not sent"; }

 private:
  ThisThread me_ = this_thread();
  Net net_;
  Socket socket_;
  char line_[512];
  Reader<ThisThread> reader_{me_, net_, socket_, line_, sizeof line_};
};

/// Visitors who come one after the other; each has a sum of 1. So many take all seats.
std::vector<std::unique_ptr<Visitor>> take_seats(Clients& clients, const Endpoint& where,
                                                 unsigned count = kGroups * kSeats) {
  std::vector<std::unique_ptr<Visitor>> seated;
  for (unsigned i = 0; i < count; ++i) {
    seated.push_back(std::make_unique<Visitor>(clients, where));
    EXPECT_EQ(seated.back()->ask("add 1"), "1");
  }
  return seated;
}

/// Visitors who take all seats: those of group 0, then those of group 1.
std::vector<std::unique_ptr<Visitor>> take_seats_by_group(Clients& clients, const Endpoint& where) {
  auto seated = take_seats(clients, where);
  std::stable_partition(seated.begin(), seated.end(), [](auto& visitor) { return visitor->ask("group") == "0"; });
  for (unsigned i = 0; i < kGroups * kSeats; ++i) EXPECT_EQ(seated[i]->ask("group"), i < kSeats ? "0" : "1");
  return seated;
}

/// Requests to tell `count` lines, which begin with this letter.
std::string frames(char letter, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += std::string("frame ") + letter + std::to_string(i) + "\n";
  return all;
}

/// The lines that a visitor is told by `tellers`, each of which says its frames, in their order. `own`: what it tells
/// itself, which comes between the beginning and the end of its answers.
std::vector<std::string> hear_frames(Visitor& visitor, const std::string& tellers, int count, char own = 0) {
  std::vector<std::string> heard;
  std::map<char, int> next;
  bool begun = false;
  const std::size_t lines = tellers.size() * static_cast<std::size_t>(count);
  while (heard.size() < lines || begun) {
    const std::string line = visitor.hear();
    if (line == "begin" || line == "end") {
      EXPECT_EQ(begun, line == "end");
      begun = !begun;
      continue;
    }
    heard.push_back(line);
    if (line.empty() || tellers.find(line[0]) == std::string::npos) {
      ADD_FAILURE() << line;
      break;
    }
    EXPECT_TRUE(begun || line[0] != own) << line;
    EXPECT_EQ(line.substr(1), std::to_string(next[line[0]]++)) << line;
  }
  return heard;
}

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

TYPED_TEST(Server, WhatOneSaysMayGoToAllOfItsGroup) {
  this->start(no_limits(), 1);
  Clients& clients = this->clients_;
  Visitor silent(clients, this->where()), speaker(clients, this->where());
  EXPECT_EQ(speaker.ask("add 1"), "1") << "both are seated now";
  EXPECT_EQ(speaker.ask("some of you"), "of you");
  EXPECT_EQ(speaker.ask("tell all of you"), "all of you");
  EXPECT_EQ(silent.hear(), "all of you");
  EXPECT_EQ(silent.ask("tell thanks"), "thanks");
  EXPECT_EQ(speaker.hear(), "thanks");
}

TYPED_TEST(Server, WhatOneSaysMayGoToTheClientsOfAllGroups) {
  this->start(no_limits());
  Clients& clients = this->clients_;
  Visitor silent(clients, this->where());
  auto seated = take_seats(clients, this->where(), kGroups * kSeats - 1);
  for (std::size_t i = 0; i < seated.size(); ++i) {
    const std::string words = "all of you " + std::to_string(i);
    ASSERT_TRUE(seated[i]->say("tell " + words + "\nsome only\n"));
    EXPECT_EQ(silent.hear(), words);
    for (auto& visitor : seated) {
      EXPECT_EQ(visitor->hear(), words);
      EXPECT_EQ(visitor->hear(), "only");
    }
  }
  EXPECT_EQ(silent.ask("add 2"), "2");
}

TYPED_TEST(Server, AllGroupsMayTellAtTheSameTimeAndAllHearItInOneOrder) {
  this->start(no_limits());
  constexpr int kLines = 80;
  const std::string tellers = "abcd";
  const auto seated = take_seats(this->clients_, this->where());
  for (std::size_t i = 0; i < seated.size(); ++i) ASSERT_TRUE(seated[i]->say(frames(tellers[i], kLines)));
  const auto first = hear_frames(*seated[0], tellers, kLines, tellers[0]);
  for (std::size_t i = 1; i < seated.size(); ++i) {
    EXPECT_EQ(hear_frames(*seated[i], tellers, kLines, tellers[i]), first) << tellers[i];
  }
  for (const auto& visitor : seated) EXPECT_EQ(visitor->ask("add 0"), std::to_string(1 + kLines));
}

TYPED_TEST(Server, AGroupMayBeginWhileAnotherOneTells) {
  this->start(no_limits(), 1, 1);
  constexpr int kLines = 80;
  const auto seated = take_seats(this->clients_, this->where(), kSeats);
  EXPECT_EQ(seated[0]->ask("some others"), "others") << "the other group has not begun";
  EXPECT_EQ(seated[1]->hear(), "others");
  ASSERT_TRUE(seated[0]->say(frames('a', kLines)));
  this->begin_absent(1);
  const auto later = take_seats(this->clients_, this->where(), kSeats);
  hear_frames(*seated[0], "a", kLines, 'a');
  hear_frames(*seated[1], "a", kLines);
  ASSERT_TRUE(later[0]->say("some of both\n"));
  for (const auto& visitor : seated) EXPECT_EQ(visitor->hear(), "of both");
  std::string line;
  while ((line = later[0]->hear())[0] == 'a') continue;  // what it came in time for
  EXPECT_EQ(line, "of both");
}

TYPED_TEST(Server, AGroupMayEndWhileAnotherOneTells) {
  constexpr int kLines = 80;
  this->start(no_limits());
  auto seated = take_seats_by_group(this->clients_, this->where());
  EXPECT_EQ(seated[0]->ask("close"), "close");
  ASSERT_TRUE(seated[2]->say("some are left\n"));
  for (const auto& visitor : seated) EXPECT_EQ(visitor->hear(), "are left") << "also of the group that accepted";
  const unsigned ending = std::random_device{}() % kGroups * kSeats, staying = kSeats - ending;
  SCOPED_TRACE(ending);
  ASSERT_TRUE(seated[staying]->say(frames('a', kLines)));
  for (unsigned i = 0; i < kSeats; ++i) seated[ending + i].reset();
  hear_frames(*seated[staying], "a", kLines, 'a');
  hear_frames(*seated[staying + 1], "a", kLines);
  ASSERT_TRUE(seated[staying + 1]->say(frames('b', kLines)));
  hear_frames(*seated[staying], "b", kLines);
  hear_frames(*seated[staying + 1], "b", kLines, 'b');
  seated.clear();
  this->expect_end();
}

TYPED_TEST(Server, WhatAClientOfAnotherGroupCannotTakeAtOnceComesLater) {
  this->start(no_limits(), kGroups, 0, LinkKind::p2p);  // whose rings alone hold bytes
  const auto seated = take_seats_by_group(this->clients_, this->where());
  for (const unsigned teller : {0u, kSeats}) {
    ASSERT_TRUE(seated[teller]->say("flood\nsome x\n"));
    for (const auto& visitor : seated) EXPECT_TRUE(visitor->take(kFlood));  // the teller goes on once it has taken all
    for (const auto& visitor : seated) {
      EXPECT_EQ(visitor->hear(), "x");
      EXPECT_EQ(visitor->ask("add 0"), "1");
    }
  }
}

TYPED_TEST(Server, AClientOfAnotherGroupThatTakesNothingLeavesAndDisturbsNobody) {
  this->start(no_limits(), kGroups, 0, LinkKind::p2p);
  const auto seated = take_seats_by_group(this->clients_, this->where());
  const unsigned deaf = std::random_device{}() % kGroups * kSeats, teller = kSeats - deaf;
  SCOPED_TRACE(deaf);
  for (const auto& visitor : seated) {
    if (visitor != seated[deaf]) {
      EXPECT_EQ(visitor->ask("add -1"), "0");
    }
  }
  ASSERT_TRUE(seated[teller]->say("flood\nflood\nflood\nflood\ntell x\n"));  // more than ring and Writer hold
  for (const auto& visitor : seated) {
    if (visitor == seated[deaf]) continue;
    EXPECT_EQ(visitor->hear(), "x");
    EXPECT_EQ(visitor->ask("add 5"), "5");
  }
  EXPECT_EQ(this->left(Leave::slow, 1), 1u);
  EXPECT_EQ(this->left_total(), 1u) << "of the one that left";
  Visitor late(this->clients_, this->where());
  EXPECT_EQ(late.ask("add 7"), "7") << "in its seat";
}

TYPED_TEST(Server, AClientOfAnotherGroupHasUntilItsTimeIsOverToTakeWhatItIsTold) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits, kGroups, 0, LinkKind::p2p);
  const auto seated = take_seats_by_group(this->clients_, this->where());
  for (const unsigned stays : {1u, 2u, 3u}) EXPECT_EQ(seated[stays]->ask("add -1"), "0");
  ASSERT_TRUE(seated[kSeats]->say("flood\n"));  // no event comes to the group of the first
  EXPECT_EQ(this->left(Leave::slow, 1), 1u);
  EXPECT_EQ(this->left_total(), 1u);
  EXPECT_EQ(seated[1]->ask("add 2"), "2");
}

TYPED_TEST(Server, TellingWaitsForTheHandlersOfOtherGroups) {
  this->start(no_limits());
  const auto seated = take_seats_by_group(this->clients_, this->where());
  ASSERT_TRUE(seated[kSeats]->say("hold\nadd 1\n"));
  EXPECT_TRUE(this->holds());
  ASSERT_TRUE(seated[0]->say("tell x\n"));
  EXPECT_EQ(seated[1]->hear(), "x") << "of the teller's group";
  this->let_go_on();
  for (const char* line : {"2", "x"}) EXPECT_EQ(seated[kSeats]->hear(), line) << "the two requests are one turn";
  for (const unsigned other : {0u, kSeats + 1}) EXPECT_EQ(seated[other]->hear(), "x");
}

TYPED_TEST(Server, WhoHasTakenAllThatIsToldIsNotTooSlow) {
  ServerLimits limits = no_limits();
  limits.request_timeout_ns = 20'000'000;
  this->start(limits, 1, 0, LinkKind::p2p);  // whose rings alone hold bytes: the first of the two finds them full
  Clients& clients = this->clients_;
  Visitor subscriber(clients, this->where()), speaker(clients, this->where());
  EXPECT_EQ(subscriber.ask("add 1"), "1");
  ASSERT_TRUE(speaker.say("flood\nhold\ntell x\n"));  // in one turn, so that no event of the subscriber comes between
  EXPECT_TRUE(subscriber.take(kRing)) << "so that its ring has room again";
  this->let_go_on();
  EXPECT_TRUE(subscriber.take(kFlood - kRing));
  EXPECT_EQ(subscriber.hear(), "x");
  EXPECT_EQ(speaker.hear(), "x");
  ASSERT_TRUE(speaker.say("add"));
  EXPECT_EQ(speaker.hear(), "end") << "later than the subscriber's time would have been over";
  EXPECT_EQ(subscriber.ask("add 1"), "2");
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
