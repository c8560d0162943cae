// Promises of the control messages: what one side writes the other reads, and nothing out of bounds gets through.
#include "microbench/bounds.hpp"
#include "microbench/control_message.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <random>

namespace bench {
namespace {

BenchOptions usual_options() {
  BenchOptions options;
  options.question = Question::bandwidth;
  options.link = gpusock::LinkKind::p2p;
  options.group = GroupKind::warp;
  options.sockets = 3;
  options.direction = Direction::both;
  options.ring_bytes = 64 << 10;
  return options;
}

Job usual_job() {
  Job job;
  job.question = Question::bandwidth;
  job.sockets_out = job.sockets_in = 3;
  job.bytes = 4096;
  job.warmup = 10;
  job.messages_max = 100;
  job.duration_ns = ~std::uint64_t{0};
  job.limit_ns = 1'000'000'000;
  job.token = 0x1234567890abcdef;
  return job;
}

/// The errno that a call throws; 0: none.
int errno_of(const std::function<void()>& call) {
  try {
    call();
    return 0;
  } catch (const gpusock::Error& error) {
    return error.code().value();
  }
}

TEST(ControlMessage, OptionsArriveAsTheyWereSent) {
  const BenchOptions sent = usual_options();
  const OpenMessage message = to_message(sent, Entrant::raw_tcp);
  EXPECT_EQ(message.entrant, static_cast<std::uint32_t>(Entrant::raw_tcp));
  const BenchOptions got = to_options(message);
  EXPECT_EQ(got.question, sent.question);
  EXPECT_EQ(got.link, sent.link);
  EXPECT_EQ(got.between, sent.between);
  EXPECT_EQ(got.group, sent.group);
  EXPECT_EQ(got.block_threads, sent.block_threads);
  EXPECT_EQ(got.sockets_out(), 3u);
  EXPECT_EQ(got.sockets_in(), 3u);
  EXPECT_EQ(got.ring_bytes, sent.ring_bytes);
}

TEST(ControlMessage, EveryDirectionArrivesAsItWasSent) {
  for (const Direction direction : {Direction::out, Direction::in, Direction::both}) {
    BenchOptions sent = usual_options();
    sent.direction = direction;
    EXPECT_EQ(to_options(to_message(sent, Entrant::gpusock)).direction, direction);
  }
}

TEST(ControlMessage, AJobArrivesAsItWasSent) {
  const Job sent = usual_job();
  const Job got = to_job(to_message(sent, Entrant::gpusock), usual_options());
  EXPECT_EQ(got.question, sent.question);
  EXPECT_EQ(got.sockets_out, sent.sockets_out);
  EXPECT_EQ(got.sockets_in, sent.sockets_in);
  EXPECT_EQ(got.bytes, sent.bytes);
  EXPECT_EQ(got.warmup, sent.warmup);
  EXPECT_EQ(got.messages_max, sent.messages_max);
  EXPECT_EQ(got.duration_ns, sent.duration_ns);
  EXPECT_EQ(got.limit_ns, sent.limit_ns);
  EXPECT_EQ(got.token, sent.token);
}

TEST(ControlMessage, AnAccountArrivesAsItWasSent) {
  Answer sent;
  sent.account.failed_step = Step::receive;
  sent.account.result = -ECONNRESET;
  sent.account.messages = 7;
  sent.account.wrong_words = 8;
  sent.proxy_steps = 9;
  sent.proxy_wakeups = 10;
  const Answer got = to_answer(to_message(sent), "it");
  EXPECT_EQ(got.account.failed_step, sent.account.failed_step);
  EXPECT_EQ(got.account.result, sent.account.result);
  EXPECT_EQ(got.account.messages, sent.account.messages);
  EXPECT_EQ(got.account.wrong_words, sent.account.wrong_words);
  EXPECT_EQ(got.proxy_steps, sent.proxy_steps);
  EXPECT_EQ(got.proxy_wakeups, sent.proxy_wakeups);
}

TEST(ControlMessage, OptionsOutOfBoundsAreRefused) {
  const std::function<void(OpenMessage&)> changes[] = {
      [](OpenMessage& m) { m.entrant = kEntrants; },
      [](OpenMessage& m) { m.question = 3; },
      [](OpenMessage& m) { m.link = 0; },
      [](OpenMessage& m) { m.link = gpusock::kLinkKinds; },
      [](OpenMessage& m) { m.between = 2; },
      [](OpenMessage& m) { m.between = 1; },  // with calls by a warp
      [](OpenMessage& m) { m.group = 3; },
      [](OpenMessage& m) { m.block_threads = 0; },
      [](OpenMessage& m) { m.block_threads = kBlockThreadsMax + 1; },
      [](OpenMessage& m) { m.sockets_out = m.sockets_in = 0; },
      [](OpenMessage& m) { m.sockets_out = m.sockets_in = kSocketsMax + 1; },
      [](OpenMessage& m) { m.sockets_out = ~0u, m.sockets_in = 2; },
      [](OpenMessage& m) { m.sockets_out = 2; },
      [](OpenMessage& m) { m.question = 0; },  // latency has no direction
      [](OpenMessage& m) { m.ring_bytes = 1; },
      [](OpenMessage& m) { m.ring_bytes = 12 << 10; },
      [](OpenMessage& m) { m.ring_bytes = kRingBytesMax * 2; },
      [](OpenMessage& m) { m.ring_bytes = kRingBytesMax, m.sockets_out = m.sockets_in = kSocketsMax; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    OpenMessage message = to_message(usual_options(), Entrant::gpusock);
    changes[i](message);
    EXPECT_EQ(errno_of([&] { to_options(message); }), EINVAL) << "change " << i;
  }
}

TEST(ControlMessage, RoundsOutOfBoundsAreRefused) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const std::function<void(RoundMessage&)> changes[] = {
      [](RoundMessage& m) { m.bytes = 0; },
      [](RoundMessage& m) { m.bytes = kMessageBytesMax + 1; },
      [](RoundMessage& m) { m.bytes = kAll; },
      [](RoundMessage& m) { m.warmup = kWarmupMax + 1; },
      [](RoundMessage& m) { m.messages_max = 0; },
      [](RoundMessage& m) { m.messages_max = kAll; },  // without a duration
      [](RoundMessage& m) { m.duration_ns = 0; },
      [](RoundMessage& m) { m.duration_ns = kAll - 1; },
      [](RoundMessage& m) { m.limit_ns = 0; },
      [](RoundMessage& m) { m.limit_ns = kAll; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    RoundMessage message = to_message(usual_job(), Entrant::gpusock);
    changes[i](message);
    EXPECT_EQ(errno_of([&] { to_job(message, usual_options()); }), EINVAL) << "change " << i;
  }
}

TEST(ControlMessage, MessagesOfAllSocketsTogetherAreBounded) {
  BenchOptions many = usual_options();
  many.sockets = kSocketsMax;
  RoundMessage message = to_message(usual_job(), Entrant::gpusock);
  EXPECT_EQ(errno_of([&] { to_job(message, many); }), 0);
  message.bytes = kMessageBytesMax;
  EXPECT_EQ(errno_of([&] { to_job(message, many); }), EINVAL);
}

TEST(ControlMessage, WhateverAStrangerSendsIsRefusedOrWithinBounds) {
  std::mt19937_64 random(1);
  const auto word = [&] { return random() >> (random() % 64); };  // small numbers, too
  for (int i = 0; i < 2'000; ++i) {
    OpenMessage open;
    RoundMessage round;
    AccountMessage account;
    for (auto* fields :
         {reinterpret_cast<char*>(&open), reinterpret_cast<char*>(&round), reinterpret_cast<char*>(&account)}) {
      static_assert(sizeof open <= sizeof round && sizeof open <= sizeof account);
      for (std::size_t at = 0; at < sizeof open; at += 4) {
        const auto value = static_cast<std::uint32_t>(word());
        std::memcpy(fields + at, &value, 4);
      }
    }
    errno_of([&] {
      const BenchOptions options = to_options(open);
      ASSERT_LE(options.sockets_in_all(), 2 * kSocketsMax);
      ASSERT_GE(options.sockets_in_all(), 1u);
      ASSERT_LE(options.threads(), kBlockThreadsMax);
    });
    errno_of([&] {
      const Job job = to_job(round, usual_options());
      ASSERT_LE(2 * job.bytes * job.sockets(), kSideBytesMax);
      ASSERT_LE(job.limit_ns, 1'200'000'000'000u);
    });
    errno_of([&] { ASSERT_LT(static_cast<std::uint32_t>(to_answer(account, "it").account.failed_step), kSteps); });
  }
}

TEST(ControlMessage, AHeaderThatIsNotValidIsNamed) {
  Header header;
  header.kind = static_cast<std::uint32_t>(MessageKind::started);
  header.body_bytes = sizeof(StartedMessage);
  EXPECT_EQ(problem_of(header, "it"), "");
  Header wrong = header;
  wrong.magic = 0x2e302d322d485353;  // "SSH-2.0."
  EXPECT_EQ(problem_of(wrong, "it"), "it is not gpusock-bench");
  wrong = header;
  wrong.version = 7;
  EXPECT_EQ(problem_of(wrong, "it"), "it speaks version 7 of this protocol, this program version " +
                                         std::to_string(kControlVersion) +
                                         ": run the same gpusock-bench on both sides");
  for (const std::uint32_t kind : {0u, 8u, ~0u}) {
    wrong = header;
    wrong.kind = kind;
    EXPECT_NE(problem_of(wrong, "it"), "");
  }
  for (const std::uint32_t bytes : {0u, 7u, 9u, ~0u}) {
    wrong = header;
    wrong.body_bytes = bytes;
    EXPECT_NE(problem_of(wrong, "it"), "");
  }
}

TEST(ControlMessage, AnotherMessageThanTheOneThatIsDueIsAnError) {
  const Frame frame{MessageKind::wait, std::string(sizeof(WaitMessage), '\0')};
  EXPECT_EQ(errno_of([&] { decode<StartedMessage>(frame, "it"); }), EPROTO);
}

TEST(ControlMessage, ARefusalIsAnErrorWithItsTextAndCannotSteerATerminal) {
  const std::string bytes = encode(to_refusal(EBUSY, "later\033[2J"));
  const Frame frame{MessageKind::refused, bytes.substr(sizeof(Header))};
  const auto receive = [&] { decode<ReadyMessage>(frame, "the server"); };
  EXPECT_EQ(errno_of(receive), EBUSY);
  const std::string text = gpusock::test::error_of<gpusock::Error>(receive);
  EXPECT_NE(text.find("the server refuses: later?[2J"), std::string::npos) << text;
}

TEST(ControlMessage, ARefusalsErrorIsOneOrElseProtocol) {
  for (const std::int32_t error : {0, -1, 4096, INT32_MIN}) {
    const std::string bytes = encode(to_refusal(error, "no"));
    const Frame frame{MessageKind::refused, bytes.substr(sizeof(Header))};
    EXPECT_EQ(errno_of([&] { decode<ReadyMessage>(frame, "it"); }), EPROTO);
  }
}

TEST(ControlMessage, TextIsCutToItsField) {
  char field[8];
  std::memset(field, 'x', sizeof field);
  EXPECT_EQ(printable(field, sizeof field), "xxxxxxxx");  // without an end
  std::memset(field, 0, sizeof field);
  put_text("a long text", field, sizeof field);
  EXPECT_EQ(printable(field, sizeof field), "a long ");
}

}  // namespace
}  // namespace bench
