// What Greetings, connect_all() and exchange() promise whoever else connects: strangers that are silent, slow, send
// garbage or hang up neither make a call outlast its deadline, nor keep those away that are to be heard.
#include <gpusock/exchange.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/server.cuh>

#include "tests/support/patience.hpp"
#include "tests/support/strangers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::greetings {
namespace {

using test::Manner;
using test::MannerName;
using test::Stranger;
using test::strangers_at;

constexpr std::uint64_t kShortNs = 100'000'000;
/// What a call with that deadline may take on a slow machine. Where strangers are waited for one after the other, at 2
/// s each, it takes several times as long.
constexpr std::uint64_t kMostNs = 10'000'000'000;
constexpr std::uint64_t kHourNs = 3'600'000'000'000;

Options options() {
  Options options;
  options.sockets_max = 256;
  options.connections_max = 128;
  options.ring_bytes = 4 << 10;
  return options;
}

/// A listener of a host thread.
struct Door {
  Context context{options()};
  Net net = context.net();
  Socket listener;
  Endpoint at;

  explicit Door(const std::string& where = "127.0.0.1:0,link=tcp")
      : listener(net.listen(this_thread(), Endpoint::parse(where), 512, patience())) {
    EXPECT_EQ(net.getsockname(listener, at), 0);
  }
};

struct Hello {
  std::uint64_t words[8] = {};
};
std::string bytes_of(const Hello& hello) { return {reinterpret_cast<const char*>(&hello), sizeof hello}; }

TEST(Greetings, ComeWholeOrNotAtAll) {
  Door door;
  Greetings<Hello> greetings(door.net, door.listener, kHourNs);
  Stranger slow(door.at);
  const Hello said{{1, 2, 3, 4, 5, 6, 7, 8}};
  const std::string bytes = bytes_of(said);
  Hello heard;
  for (const char byte : bytes.substr(0, bytes.size() - 1)) {
    ASSERT_TRUE(slow.say(std::string(1, byte)));
    ASSERT_EQ(greetings.next(heard, Deadline::now()), -EAGAIN);
  }
  ASSERT_TRUE(slow.say(bytes.substr(bytes.size() - 1)));
  const Socket caller = greetings.next(heard, patience());
  ASSERT_GE(caller, 0);
  EXPECT_EQ(bytes_of(heard), bytes);
  EXPECT_TRUE(slow.still_waits());
  EXPECT_EQ(door.net.close(this_thread(), caller), 0) << "it is the program's";
}

TEST(Greetings, OfOneCallerAreHeardWhileOthersAreSilent) {
  for (const Manner manner : {Manner::silent, Manner::slow, Manner::hangs_up}) {
    Door door;
    const auto strangers = strangers_at(door.at, manner, 20);
    const Stranger caller(door.at);
    ASSERT_TRUE(caller.say(bytes_of({{7}})));
    Greetings<Hello> greetings(door.net, door.listener, kHourNs);
    Hello heard;
    EXPECT_GE(greetings.next(heard, patience()), 0) << MannerName::of(manner);
    EXPECT_EQ(heard.words[0], 7u);
  }
}

TEST(Greetings, ThoseThatWaitLongestMakeRoom) {
  constexpr int kMore = 3;
  Door door;
  const auto strangers = strangers_at(door.at, Manner::silent, Greetings<Hello>::kCallersMax + kMore);
  const Stranger caller(door.at);
  ASSERT_TRUE(caller.say(bytes_of({{7}})));
  Greetings<Hello> greetings(door.net, door.listener, kHourNs);
  Hello heard;
  ASSERT_GE(greetings.next(heard, patience()), 0);
  for (int i = 0; i <= kMore; ++i) EXPECT_TRUE(strangers[static_cast<std::size_t>(i)].sent_away()) << i;
  EXPECT_TRUE(strangers[kMore + 1].still_waits());
  EXPECT_TRUE(strangers.back().still_waits());
}

TEST(Greetings, PatienceEnds) {
  for (const Manner manner : {Manner::silent, Manner::slow}) {
    Door door;
    const auto strangers = strangers_at(door.at, manner, 3);
    Greetings<Hello> greetings(door.net, door.listener, 1);
    Hello heard;
    EXPECT_EQ(greetings.next(heard, Deadline::after_ns(kShortNs)), -ETIMEDOUT);
    for (const Stranger& stranger : strangers) EXPECT_TRUE(stranger.sent_away()) << MannerName::of(manner);
  }
}

TEST(Greetings, StrangersAreSentAwayAtTheEnd) {
  Door door;
  const Stranger stranger(door.at);
  {
    Greetings<Hello> greetings(door.net, door.listener, kHourNs);
    Hello heard;
    EXPECT_EQ(greetings.next(heard, Deadline::after_ns(kShortNs)), -ETIMEDOUT);
    EXPECT_TRUE(stranger.still_waits());
  }
  EXPECT_TRUE(stranger.sent_away());
}

TEST(Greetings, ADeadlineThatHasPassedEndsTheWaitThoughCallersCome) {
  Door door;
  Greetings<Hello> greetings(door.net, door.listener, kHourNs);
  Hello heard;
  const Stranger caller(door.at);
  ASSERT_TRUE(caller.say(bytes_of({})));
  const Deadline past = Deadline::after_ns(0);
  EXPECT_EQ(greetings.next(heard, past), -ETIMEDOUT);
  EXPECT_GE(greetings.next(heard, patience()), 0) << "it is heard by the next call";
}

TEST(Greetings, TheListenersTimeoutIsTheDefault) {
  Door door;
  ASSERT_EQ(door.net.setsockopt(this_thread(), door.listener, SocketOption::receive_timeout_ns, kShortNs), 0);
  Greetings<Hello> greetings(door.net, door.listener, kHourNs);
  const Stranger stranger(door.at);
  Hello heard;
  EXPECT_EQ(greetings.next(heard, Deadline::by_default()), -ETIMEDOUT);
}

TEST(Greetings, EndWithTheListenerAndTheContext) {
  Door door;
  const Stranger stranger(door.at);
  Greetings<Hello> greetings(door.net, door.listener, kHourNs);
  Hello heard;
  EXPECT_EQ(greetings.next(heard, Deadline::after_ns(kShortNs)), -ETIMEDOUT);
  {
    const std::jthread closing([&] { door.net.close(this_thread(), door.listener); });
    EXPECT_EQ(greetings.next(heard, patience()), -EBADF);
  }
  const std::jthread ending([&] { door.context.cancel(); });
  const Socket answer = greetings.next(heard, patience());
  EXPECT_TRUE(answer == -EBADF || answer == -ECANCELED) << answer;
}

/// Calls that wait for a peer that never comes, by their names.
class Waits : public testing::TestWithParam<Manner> {};

TEST_P(Waits, ConnectAllEndsByItsDeadline) {
  Door door;
  const auto strangers = strangers_at(door.at, GetParam(), 20);
  const std::vector<Endpoint> all{door.at, door.at};
  Socket sockets[2];
  const std::uint64_t start_ns = clock_ns();
  EXPECT_EQ(connect_all(door.net, door.listener, all.data(), 0, 2, sockets, Deadline::after_ns(kShortNs)), -ETIMEDOUT);
  EXPECT_LT(clock_ns() - start_ns, kMostNs);
  EXPECT_EQ(sockets[1], -ETIMEDOUT);
}

TEST_P(Waits, RanksMeetThoughStrangersCameFirst) {
  constexpr std::uint32_t kRanks = 3;
  Door doors[kRanks];
  std::vector<std::vector<Stranger>> strangers;
  std::vector<Endpoint> all;
  for (const Door& door : doors) {
    strangers.push_back(strangers_at(door.at, GetParam(), 40));
    all.push_back(door.at);
  }
  std::atomic<int> met = 0;
  const std::uint64_t start_ns = clock_ns();
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t own = 0; own < kRanks; ++own) {
      threads.emplace_back([&, own] {
        const Door& door = doors[own];
        Socket sockets[kRanks];
        met += connect_all(door.net, door.listener, all.data(), own, kRanks, sockets, patience()) == 0;
        for (const Socket socket : sockets) door.net.close(this_thread(), socket);
      });
    }
  }
  EXPECT_EQ(met, static_cast<int>(kRanks));
  EXPECT_LT(clock_ns() - start_ns, kPatienceNs);
}

/// How exchange() ends with this peer.
void expect_exchange_to_end(Manner manner, Deadline deadline, std::int64_t by_timeout) {
  Door door;
  Stranger peer(door.at);
  peer.behave(manner);
  const Socket socket = door.net.accept(this_thread(), door.listener, patience());
  ASSERT_GE(socket, 0);
  std::vector<char> out(100'000), in(100);  // longer than the rings
  const std::uint64_t start_ns = clock_ns();
  const std::int64_t got = exchange(this_thread(), door.net, socket, out.data(), out.size(), in.data(), in.size(),
                                    deadline);
  EXPECT_LT(clock_ns() - start_ns, kMostNs);
  if (manner == Manner::silent || manner == Manner::slow) {
    EXPECT_EQ(got, by_timeout);
  } else if (deadline.is_now()) {  // it may not have come yet
    EXPECT_LT(got, 0);
    EXPECT_NE(got, -EAGAIN);
  } else if (manner == Manner::garbage) {
    EXPECT_EQ(got, -EMSGSIZE);
  } else {
    EXPECT_TRUE(got == -EPIPE || got == -ECONNRESET) << got;
  }
}

TEST_P(Waits, ExchangeEndsByItsDeadline) {
  expect_exchange_to_end(GetParam(), Deadline::after_ns(kShortNs), -ETIMEDOUT);
}

/// A part of a message may have been sent: there is nothing to try again.
TEST_P(Waits, ExchangeWithoutWaitingIsOneThatTookTooLong) {
  expect_exchange_to_end(GetParam(), Deadline::now(), -ETIMEDOUT);
}

INSTANTIATE_TEST_SUITE_P(Of, Waits, testing::Values(Manner::silent, Manner::slow, Manner::garbage, Manner::hangs_up),
                         [](const auto& each) { return MannerName::of(each.param); });

/// The same in a kernel, whose stack is smaller.
__global__ void meet(Net net, Socket listener, const Endpoint* all, Socket* sockets, int* error) {
  *error = connect_all(net, listener, all, 0, 2, sockets, Deadline::after_ns(kShortNs));
}

TEST(Waits, ConnectAllEndsByItsDeadlineInAKernel) {
  Context context(options());
  Mapped<Socket> sockets(context, 2);
  Mapped<Endpoint> all(context, 2);
  Mapped<int> error(context, 1);
  const Listener listener = open_listener(context, Endpoint::parse("127.0.0.1:0,link=tcp"));
  all[0] = all[1] = listener.where;
  const auto strangers = strangers_at(all[0], Manner::silent, 20);
  const std::uint64_t start_ns = clock_ns();
  launch(context, {}, meet, context.net(), listener.socket, all.data(), sockets.data(), error.data());
  context.synchronize();
  EXPECT_EQ(error[0], -ETIMEDOUT);
  EXPECT_LT(clock_ns() - start_ns, kMostNs);
}

}  // namespace
}  // namespace gpusock::greetings
