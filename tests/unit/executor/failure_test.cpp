// How runs end that cannot end well: every wait ends, and the message names the rank.
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/hello.hpp"
#include "trial/local_ranks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/whole.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace {

using namespace param_sync;
using executor::Executor;
using executor::LocalRanks;
using executor::Settings;
using executor_test::kTimeoutNs;
using executor_test::make;
using gpusock::Context;
using gpusock::Endpoint;
using gpusock::test::error_of;
using schedule::Schedule;

Settings settings_of(int rank) {
  Settings settings;
  settings.rank = rank;
  return settings;
}

const Endpoint kAnyPort = Endpoint::parse("127.0.0.1:0,link=tcp");

void expect_says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

TEST(ExecutionFailure, ARankThatDoesNotStartIsMissedInTimeByAllThatWaitForIt) {
  LocalRanks ranks({make("ring", 3)}, gpusock::LinkKind::p2p, {}, 100);
  std::vector<std::uint64_t> runs;
  for (const int rank : {1, 2}) {
    runs.push_back(ranks.executor(rank).start(0, ranks.tensor(rank).data(), 100, 30'000'000));
  }
  // Who waits for the missing one sees the deadline, or that the other has given up before.
  const std::string first = error_of([&] { ranks.executor(1).wait(runs[0]); });
  const std::string second = error_of([&] { ranks.executor(2).wait(runs[1]); });
  expect_says(first, "rank 1: lost rank ");
  expect_says(second, "rank 2: lost rank ");
  expect_says(first + second, "nothing more came of it in time");
  // It finds that the others have given up.
  const std::string third = error_of(
      [&] { ranks.executor(0).wait(ranks.executor(0).start(0, ranks.tensor(0).data(), 100, kTimeoutNs)); });
  expect_says(third, "rank 0: lost rank ");
  // And nothing starts after a failure.
  expect_says(error_of([&] { ranks.executor(1).start(0, ranks.tensor(1).data(), 100, kTimeoutNs); }), "lost rank");
}

struct Rank {
  Context context;
  Executor executor;
  gpusock::DeviceBuffer<float> tensor{context, 100};

  Rank(int rank, const Schedule& schedule) : executor(context, settings_of(rank), {schedule}) {}
  std::uint64_t start() { return executor.start(0, tensor.data(), tensor.size(), kTimeoutNs); }
};

TEST(ExecutionFailure, ARankThatEndsEndsAllOthers) {
  for (const char* link : {"p2p", "tcp"}) {
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<Endpoint> addresses;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<Rank>(rank, make("ring", 3)));
      addresses.push_back(ranks.back()->executor.listen(Endpoint::parse(std::string("127.0.0.1:0,link=") + link)));
    }
    for (const auto& rank : ranks) rank->executor.begin_connect(addresses);
    for (const auto& rank : ranks) rank->executor.await_connect();
    const auto run = ranks[0]->start();
    EXPECT_EQ(ranks[2]->start(), run);
    ranks[1].reset();
    expect_says(error_of([&] { ranks[2]->executor.wait(run); }),
                "rank 2: lost rank 1 (" + addresses[1].host_port() + ")");
    expect_says(error_of([&] { ranks[0]->executor.wait(run); }), "rank 0: lost rank ");
  }
}

TEST(ExecutionFailure, CancellingTheContextEndsItsRuns) {
  LocalRanks ranks({make("ring", 2)}, gpusock::LinkKind::p2p, {}, 100);
  const auto run = ranks.executor(1).start(0, ranks.tensor(1).data(), 100, kTimeoutNs);
  EXPECT_FALSE(ranks.executor(1).done(run));
  ranks.context(1).cancel();
  expect_says(error_of([&] { ranks.executor(1).wait(run); }), "rank 1: its context was ended");
}

TEST(ExecutionFailure, TensorsOfDifferentSizesAreRefused) {
  LocalRanks ranks({make("mesh", 2)}, gpusock::LinkKind::p2p, {}, 100);
  const auto first = ranks.executor(0).start(0, ranks.tensor(0).data(), 100, kTimeoutNs);
  const auto second = ranks.executor(1).start(0, ranks.tensor(1).data(), 98, kTimeoutNs);
  const std::string both = error_of([&] { ranks.executor(0).wait(first); }) +
                           error_of([&] { ranks.executor(1).wait(second); });
  expect_says(both, "all ranks must start the same operations, on tensors of one size");
  expect_says(both, "49 ");  // floats, or are expected: whoever sees it first
}

/// Each of two ranks takes the other one for wrong. A third, which only one of them tells, must not decide.
TEST(ExecutionFailure, WhoHearsOfTwoRanksThatDifferBlamesNeither) {
  executor::ExecutionFailure heard;
  heard.kind = executor::ExecutionFailureKind::receive;
  heard.blame = executor::Blame::told_of_schedule;
  heard.channel = 0;
  heard.lost = 1;
  executor::Channel to_teller{};
  to_teller.peer = 2;
  EXPECT_EQ(executor::describe(heard, 0, {to_teller}, {}, {}),
            "rank 0: rank 1 and rank 2 do not follow the same schedule: rank 2 has told so, and says more");
}

TEST(ExecutionFailure, RunsOfOtherSchedulesAreRefused) {
  LocalRanks ranks({make("mesh", 2), make("tree:binary", 2)}, gpusock::LinkKind::p2p, {}, 100);
  const auto first = ranks.executor(0).start(0, ranks.tensor(0).data(), 100, kTimeoutNs);
  const auto second = ranks.executor(1).start(1, ranks.tensor(1).data(), 100, kTimeoutNs);
  const std::string both = error_of([&] { ranks.executor(0).wait(first); }) +
                           error_of([&] { ranks.executor(1).wait(second); });
  expect_says(both, "does not follow the schedule");
}

TEST(ExecutionFailure, OtherSettingsAreRefusedByName) {
  Context contexts[2];
  Settings other = settings_of(1);
  other.unit_bytes = 4096;
  Executor low(contexts[0], settings_of(0), {make("ring", 2)}), high(contexts[1], other, {make("ring", 2)});
  const std::vector<Endpoint> addresses{low.listen(kAnyPort), high.listen(kAnyPort)};
  low.begin_connect(addresses);
  high.begin_connect(addresses);
  const std::string words = "was started with other settings: unit size is ";
  expect_says(error_of([&] { low.await_connect(); }), "rank 0: rank 1 (" + addresses[1].host_port() + ") " + words);
  expect_says(error_of([&] { high.await_connect(); }), words);
}

TEST(ExecutionFailure, OtherSchedulesAreRefused) {
  Context contexts[2];
  Executor low(contexts[0], settings_of(0), {make("ring", 2)}), high(contexts[1], settings_of(1), {make("mesh", 2)});
  const std::vector<Endpoint> addresses{low.listen(kAnyPort), high.listen(kAnyPort)};
  low.begin_connect(addresses);
  high.begin_connect(addresses);
  expect_says(error_of([&] { low.await_connect(); }), "schedules, or how they are executed (hash)");
  expect_says(error_of([&] { high.await_connect(); }), "schedules, or how they are executed (hash)");
}

TEST(ExecutionFailure, OtherSettingsOfTheProgramAreRefused) {
  Context contexts[2];
  Executor low(contexts[0], settings_of(0), {make("ring", 2)}), high(contexts[1], settings_of(1), {make("ring", 2)});
  const std::vector<Endpoint> addresses{low.listen(kAnyPort), high.listen(kAnyPort)};
  const std::vector<std::uint64_t> many(executor::kProgramSettingsMax + 1);
  expect_says(error_of([&] { low.begin_connect(addresses, many); }), "at most 16 are compared");
  low.begin_connect(addresses, std::vector<std::uint64_t>{1, 2, 3});
  high.begin_connect(addresses, std::vector<std::uint64_t>{1, 7, 3});
  expect_says(error_of([&] { low.await_connect(); }), "a setting of the program is 0x7 there and 0x2 here");
  expect_says(error_of([&] { high.await_connect(); }), "a setting of the program is 0x2 there and 0x7 here");
  const auto failure = low.failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(static_cast<int>(failure->field), static_cast<int>(executor::ChannelHelloField::program) + 1);
}

TEST(ExecutionFailure, ARankAtTheAddressOfAnotherIsNamed) {
  Context contexts[2];
  Executor low(contexts[0], settings_of(1), {make("ring", 3)}), high(contexts[1], settings_of(2), {make("ring", 3)});
  const std::vector<Endpoint> addresses{low.listen(kAnyPort), high.listen(kAnyPort)};
  low.begin_connect({addresses[1], addresses[0], addresses[1]});
  high.begin_connect({addresses[0], addresses[0], addresses[1]});
  const std::string where = "where rank 0 (";
  expect_says(error_of([&] { high.await_connect(); }),
              "rank 2: " + where + addresses[0].host_port() + ") is to be, rank 1 answers");
  contexts[0].cancel();  // rank 2 accepts nobody
  error_of([&] { low.await_connect(); });
}

TEST(ExecutionFailure, WhoIsNotThereIsNamed) {
  Context context;
  Settings settings = settings_of(0);
  settings.connect_timeout_ns = 20'000'000;
  Executor low(context, settings, {make("ring", 3)});
  const Endpoint at = low.listen(kAnyPort);
  low.begin_connect({at, at, at});
  expect_says(error_of([&] { low.await_connect(); }), "is it running, and can it reach the ranks before it?");
  settings.rank = 2;
  Executor high(context, settings, {make("ring", 3)});
  high.begin_connect({Endpoint::parse("127.0.0.1:1,link=tcp"), at, at});
  expect_says(error_of([&] { high.await_connect(); }), "cannot connect to rank 0 (127.0.0.1:1)");
}

TEST(ExecutionFailure, MemoryThatCannotBeSharedIsToldWithWhatToSet) {
  const auto connecting = [](std::int32_t error) {
    return executor::describe({.kind = executor::ExecutionFailureKind::connect, .error = error}, 0, {}, {}, {});
  };
  expect_says(connecting(ENOBUFS), "GPUSOCK_HOST_RINGS=NAME,connections=N");
  expect_says(connecting(EHOSTUNREACH), "the same GPUSOCK_HOST_RINGS=NAME");
}

/// A rank 1 of two that a host thread plays.
class FalseRank {
 public:
  explicit FalseRank(const Endpoint& to) : net_(context_.net()) {
    socket_ = net_.connect(gpusock::this_thread(), to, gpusock::patience());
    EXPECT_GE(socket_, 0);
  }
  template <class T>
  void send(const T& what) {
    gpusock::test::send_whole(net_, socket_, what);
  }
  /// As the other side says hello, but for the rank.
  executor::ChannelHello exchange_hello(executor::ChannelHello hello) {
    hello.rank = 1;
    send(hello);
    return receive_hello();
  }
  executor::ChannelHello receive_hello() { return gpusock::test::receive_whole<executor::ChannelHello>(net_, socket_); }
  void close() { net_.close(gpusock::this_thread(), socket_); }

 private:
  Context context_;
  gpusock::Net net_;
  gpusock::Socket socket_ = -1;
};

/// A rank 0 of two whose rank 1 is played.
struct Played {
  explicit Played(const std::string& by = "tree:binary") : scheme(by) {}

  std::string scheme;
  Context context;
  Executor executor{context, settings_of(0), {make(scheme, 2)}};
  gpusock::DeviceBuffer<float> tensor{context, 160};
  Endpoint at = executor.listen(kAnyPort);

  executor::ChannelHello hello() const {
    executor::ChannelHello hello;
    const Settings settings;
    hello[executor::ChannelHelloField::version] = executor::ChannelHello::kVersion;
    hello[executor::ChannelHelloField::nodes] = 2;
    hello[executor::ChannelHelloField::ring_bytes] = settings.ring_bytes;
    hello[executor::ChannelHelloField::unit_bytes] = 256 << 10;
    hello[executor::ChannelHelloField::schedules] = executor::fingerprint({make(scheme, 2)}, settings_of(0));
    hello.channel = 0;
    return hello;
  }

  /// What the run ends with, after the played rank has connected and `act` was called with it.
  template <class Act>
  std::string end(Act act) {
    FalseRank other(at);  // before kernels wait for it: making its context waits for kernels on a GPU
    executor.begin_connect({at, at});
    const executor::ChannelHello ours = other.exchange_hello(hello());
    EXPECT_EQ(ours.difference(hello()), executor::ChannelHelloField::none);
    EXPECT_EQ(error_of([&] { executor.await_connect(); }), "");
    const auto run = executor.start(0, tensor.data(), 160, kTimeoutNs);
    act(other);
    return error_of([&] { executor.wait(run); });
  }
};

TEST(ExecutionFailure, BytesThatAreNoMessageAreRefused) {
  for (const char* scheme : {"tree:binary", "butterfly", "rhd"}) {
    Played rank(scheme);
    const std::string problem = rank.end([](FalseRank& other) {
      char bytes[64];
      std::memset(bytes, 0x5a, sizeof bytes);
      other.send(bytes);
    });
    expect_says(problem, "rank 0: rank 1 (");
    expect_says(problem, "does not follow the schedule: it sent bytes that are no message");
    expect_says(problem, "recv_reduce");
  }
}

TEST(ExecutionFailure, AMessageOfAnotherChunkIsRefused) {
  Played rank;
  const std::string problem = rank.end([](FalseRank& other) {
    executor::MessageHeader header;
    header.chunk = 7;
    header.count = 1;
    header.run = 1;
    header.floats = 10;
    other.send(header);
  });
  expect_says(problem, "it sent chunks 7 to 7 in pass 0, expected are chunks 0 to 0 in pass 0");
}

TEST(ExecutionFailure, AMessageThatIsCutIsNoticed) {
  Played rank;
  const std::string problem = rank.end([](FalseRank& other) {
    executor::MessageHeader header;
    header.count = 1;
    header.run = 1;
    header.floats = 10;
    other.send(header);
    char part[6] = {};  // of the second float, just a half
    other.send(part);
    other.close();
  });
  expect_says(problem, "rank 0: lost rank 1 (");
}

TEST(ExecutionFailure, StrangersAreTurnedAway) {
  Played rank;
  FalseRank stranger(rank.at), same_number(rank.at);
  char request[sizeof(executor::ChannelHello)] = "GET / HTTP/1.1\r\n\r\n";
  stranger.send(request);
  executor::ChannelHello of_no_channel = rank.hello();
  of_no_channel.rank = 1;
  of_no_channel.channel = 77;
  same_number.send(of_no_channel);
  const std::string problem = rank.end([](FalseRank& other) { other.close(); });
  expect_says(problem, "rank 0: lost rank 1 (");
}

TEST(ExecutionFailure, ASecondProcessOfARankIsNamed) {
  Played rank("mesh");  // with several channels
  FalseRank first(rank.at), second(rank.at);
  rank.executor.begin_connect({rank.at, rank.at});
  first.exchange_hello(rank.hello());
  executor::ChannelHello hello = rank.hello();
  hello.rank = 1;
  second.send(hello);
  expect_says(error_of([&] { rank.executor.await_connect(); }), "two processes say that they are rank 1");
}

TEST(ExecutionFailure, ARankOfAnotherRunIsToldTheSettingsAndDisturbsNobody) {
  Played rank;
  FalseRank stranger(rank.at), first(rank.at);
  rank.executor.begin_connect({rank.at, rank.at});
  executor::ChannelHello other = rank.hello();
  other[executor::ChannelHelloField::nodes] = 5;
  other.rank = 4;
  stranger.send(other);
  EXPECT_EQ(stranger.receive_hello()[executor::ChannelHelloField::nodes], 2u);
  first.exchange_hello(rank.hello());
  EXPECT_EQ(error_of([&] { rank.executor.await_connect(); }), "");
}

TEST(ExecutionFailure, InvalidSettingsAreRefused) {
  Context context;
  const auto refusal = [&](const Settings& settings, const std::vector<Schedule>& schedules) {
    return error_of([&] { Executor refused(context, settings, schedules); });
  };
  Settings settings;
  settings.ring_bytes = 5000;
  expect_says(refusal(settings, {make("ring", 2)}), "take a power of two from 4 KiB to 64 MiB");
  settings.ring_bytes = 4096;
  settings.unit_bytes = 4068;
  expect_says(refusal(settings, {make("ring", 2)}), "a multiple of 4 up to 4064");
  expect_says(refusal({}, {}), "needs a schedule");
  expect_says(refusal({}, {make("ring", 2), make("ring", 3)}), "have the same ranks");
  expect_says(refusal(settings_of(2), {make("ring", 2)}), "ranks are 0 to 1");
  Schedule wrong = make("ring", 2);
  wrong.ranks[0].lanes[0].pop_back();
  EXPECT_NE(refusal({}, {wrong}), "");

  Schedule wide;  // more lanes than the device keeps resident
  wide.scheme = "wide";
  wide.chunks = wide.workers = 1;
  wide.ranks = {{std::vector<schedule::Lane>(1100)}};
  expect_says(refusal({}, {wide}), "wide has 1100 lanes on rank 0");
}

}  // namespace
