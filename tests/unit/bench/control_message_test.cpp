// Promises of the control messages: what one side writes the other reads, and nothing out of bounds gets through.
#include "microbench/bounds.hpp"
#include "microbench/control_message.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <iterator>
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

/// A message as it arrives.
Frame frame_of(MessageKind kind, const nlohmann::json& body) {
  return {kind, encode(kind, body).substr(sizeof(Header))};
}

/// A body that was sent and has arrived.
template <class Body>
Body arrived(const Body& sent) {
  return decode<Body>(frame_of(MessageKind::open, sent), MessageKind::open, "it");
}

TEST(ControlMessage, OptionsArriveAsTheyWereSent) {
  const BenchOptions sent = usual_options();
  const auto request = arrived(OpenRequest{Entrant::raw_tcp, sent});
  EXPECT_EQ(errno_of([&] { require_valid(request); }), 0);
  EXPECT_EQ(request.entrant, Entrant::raw_tcp);
  const BenchOptions& got = request.options;
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
    EXPECT_EQ(arrived(sent).direction, direction);
  }
}

TEST(ControlMessage, AJobArrivesAsItWasSent) {
  const Job sent = usual_job();
  const Job got = to_job(arrived(RoundRequest{Entrant::gpusock, sent}), usual_options());
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
  const Answer got = to_answer(frame_of(MessageKind::account, sent), "it");
  EXPECT_EQ(got.account.failed_step, sent.account.failed_step);
  EXPECT_EQ(got.account.result, sent.account.result);
  EXPECT_EQ(got.account.messages, sent.account.messages);
  EXPECT_EQ(got.account.wrong_words, sent.account.wrong_words);
  EXPECT_EQ(got.proxy_steps, sent.proxy_steps);
  EXPECT_EQ(got.proxy_wakeups, sent.proxy_wakeups);
}

TEST(ControlMessage, OptionsOutOfBoundsAreRefused) {
  const std::function<void(OpenRequest&)> changes[] = {
      [](OpenRequest& r) { r.entrant = Entrant{kEntrants}; },
      [](OpenRequest& r) { r.options.question = Question{3}; },
      [](OpenRequest& r) { r.options.link = gpusock::LinkKind{0}; },
      [](OpenRequest& r) { r.options.link = gpusock::LinkKind{gpusock::kLinkKinds}; },
      [](OpenRequest& r) { r.options.between = Between{2}; },
      [](OpenRequest& r) { r.options.between = Between::threads; },  // with calls by a warp
      [](OpenRequest& r) { r.options.group = GroupKind{3}; },
      [](OpenRequest& r) { r.options.block_threads = 0; },
      [](OpenRequest& r) { r.options.block_threads = kBlockThreadsMax + 1; },
      [](OpenRequest& r) { r.options.sockets = 0; },
      [](OpenRequest& r) { r.options.sockets = kSocketsMax + 1; },
      [](OpenRequest& r) { r.options.sockets = ~0u; },
      [](OpenRequest& r) { r.options.direction = Direction{3}; },
      [](OpenRequest& r) { r.options.question = Question::latency; },  // which has no direction
      [](OpenRequest& r) { r.options.ring_bytes = 1; },
      [](OpenRequest& r) { r.options.ring_bytes = 12 << 10; },
      [](OpenRequest& r) { r.options.ring_bytes = kRingBytesMax * 2; },
      [](OpenRequest& r) { r.options.ring_bytes = kRingBytesMax, r.options.sockets = kSocketsMax; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    OpenRequest request{Entrant::gpusock, usual_options()};
    changes[i](request);
    EXPECT_EQ(errno_of([&] { require_valid(arrived(request)); }), EINVAL) << "change " << i;
  }
}

TEST(ControlMessage, RoundsOutOfBoundsAreRefused) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const std::function<void(Job&)> changes[] = {
      [](Job& j) { j.bytes = 0; },        [](Job& j) { j.bytes = kMessageBytesMax + 1; },
      [](Job& j) { j.bytes = kAll; },     [](Job& j) { j.warmup = kWarmupMax + 1; },
      [](Job& j) { j.messages_max = 0; }, [](Job& j) { j.messages_max = kAll; },  // without a duration
      [](Job& j) { j.duration_ns = 0; },  [](Job& j) { j.duration_ns = kAll - 1; },
      [](Job& j) { j.limit_ns = 0; },     [](Job& j) { j.limit_ns = kAll; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    RoundRequest request{Entrant::gpusock, usual_job()};
    changes[i](request.job);
    EXPECT_EQ(errno_of([&] { to_job(arrived(request), usual_options()); }), EINVAL) << "change " << i;
  }
}

TEST(ControlMessage, MessagesOfAllSocketsTogetherAreBounded) {
  BenchOptions many = usual_options();
  many.sockets = kSocketsMax;
  RoundRequest request{Entrant::gpusock, usual_job()};
  EXPECT_EQ(errno_of([&] { to_job(request, many); }), 0);
  request.job.bytes = kMessageBytesMax;
  EXPECT_EQ(errno_of([&] { to_job(request, many); }), EINVAL);
}

TEST(ControlMessage, AnAccountOutOfBoundsIsAnError) {
  nlohmann::json account = Answer{};
  account["account"]["failed_step"] = kSteps;
  EXPECT_EQ(errno_of([&] { to_answer(frame_of(MessageKind::account, account), "it"); }), EPROTO);
  account = Answer{};
  account["account"]["result"] = -4096;
  EXPECT_EQ(errno_of([&] { to_answer(frame_of(MessageKind::account, account), "it"); }), EPROTO);
}

/// Calls `call` for each member of a request for a round.
void for_each_member(nlohmann::json& json, const std::function<void(nlohmann::json& object, const char* name)>& call) {
  for (const char* name : {"bytes", "warmup", "messages_max", "duration_ns", "limit_ns", "token"})
    call(json["job"], name);
  call(json, "job");
  call(json, "entrant");
}

TEST(ControlMessage, AMissingMemberIsAnErrorAndSoIsOneOfAnotherType) {
  const nlohmann::json valid = RoundRequest{Entrant::gpusock, usual_job()};
  const nlohmann::json others[] = {nullptr, true, -1, 1.5, 1e300, "1", {1}, {{"a", 1}}};
  const auto error = [](const nlohmann::json& body) {
    return gpusock::test::error_of<gpusock::Error>(
        [&] { decode<RoundRequest>(frame_of(MessageKind::round, body), MessageKind::round, "the client"); });
  };
  const std::string expected = gpusock::Error(EPROTO, "the client sent a message that is not valid").what();
  EXPECT_EQ(error(valid), "");
  nlohmann::json body = valid;
  for_each_member(body, [&](nlohmann::json& object, const char* name) {
    const nlohmann::json member = object[name];
    for (const nlohmann::json& other : others) {
      object[name] = other;
      EXPECT_EQ(error(body), expected) << body;
    }
    object.erase(name);
    EXPECT_EQ(error(body), expected) << body;
    object[name] = member;
  });
  body = valid;
  body["entrant"] = std::uint64_t{1} << 32;  // too large for the member
  EXPECT_EQ(error(body), expected);
  body = valid;
  body["more"] = 1;
  EXPECT_EQ(error(body), expected);
}

TEST(ControlMessage, ABodyThatIsNoJsonIsAnError) {
  const std::string nested = std::string(kBodyBytesMax / 2, '[') + std::string(kBodyBytesMax / 2, ']');
  const std::string bodies[] = {"",
                                "{",
                                "[]",
                                "null",
                                "1e999",
                                "{\"port\":1,\"device\":\"\xff\"}",
                                std::string(9, '\0'),
                                R"({"port":1,"device":"","more":)" + nested + "}",
                                std::string(kBodyBytesMax, '['),
                                nested};
  for (const std::string& body : bodies) {
    EXPECT_EQ(errno_of([&] { decode<Ready>({MessageKind::ready, body}, MessageKind::ready, "it"); }), EPROTO) << body;
  }
}

TEST(ControlMessage, WhateverAStrangerSendsIsRefusedOrWithinBounds) {
  std::mt19937_64 random(1);
  const auto word = [&] { return random() >> (random() % 64); };  // small numbers, too
  /// A message with other numbers, and some with another byte.
  const auto received = [&](MessageKind kind, nlohmann::json body) {
    for (nlohmann::json& member : body) {
      for (nlohmann::json& number : member) {
        if (random() % 4 == 0) number = word();
      }
    }
    Frame frame = frame_of(kind, body);
    if (random() % 4 == 0) frame.body[random() % frame.body.size()] = static_cast<char>(random());
    return frame;
  };
  for (int i = 0; i < 2'000; ++i) {
    errno_of([&] {
      const Frame frame = received(MessageKind::open, OpenRequest{Entrant::gpusock, usual_options()});
      const auto request = decode<OpenRequest>(frame, MessageKind::open, "it");
      require_valid(request);
      ASSERT_LE(request.options.sockets_in_all(), 2 * kSocketsMax);
      ASSERT_GE(request.options.sockets_in_all(), 1u);
      ASSERT_LE(request.options.threads(), kBlockThreadsMax);
    });
    errno_of([&] {
      const Frame frame = received(MessageKind::round, RoundRequest{Entrant::gpusock, usual_job()});
      const Job job = to_job(decode<RoundRequest>(frame, MessageKind::round, "it"), usual_options());
      ASSERT_LE(2 * job.bytes * job.sockets(), kSideBytesMax);
      ASSERT_LE(job.limit_ns, 1'200'000'000'000u);
    });
    errno_of([&] {
      const Answer answer = to_answer(received(MessageKind::account, Answer{}), "it");
      ASSERT_LT(static_cast<std::uint32_t>(answer.account.failed_step), kSteps);
    });
  }
}

TEST(ControlMessage, AHeaderThatIsNotValidIsNamed) {
  Header header;
  header.kind = static_cast<std::uint32_t>(MessageKind::started);
  header.body_bytes = kBodyBytesMax;
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
    EXPECT_EQ(problem_of(wrong, "it"), "it sent a message that is not valid");
  }
  for (const std::uint32_t bytes : {kBodyBytesMax + 1, ~0u}) {
    wrong = header;
    wrong.body_bytes = bytes;
    EXPECT_EQ(problem_of(wrong, "it"), "it sent a message that is not valid");
  }
}

TEST(ControlMessage, AnotherMessageThanTheOneThatIsDueIsAnError) {
  const Frame frame = frame_of(MessageKind::wait, {});
  EXPECT_EQ(errno_of([&] { require_kind(frame, MessageKind::started, "it"); }), EPROTO);
  EXPECT_EQ(errno_of([&] { decode<Ready>(frame, MessageKind::ready, "it"); }), EPROTO);
}

TEST(ControlMessage, ARefusalIsAnErrorWithItsTextAndCannotSteerATerminal) {
  const Frame frame = frame_of(MessageKind::refused, Refusal{EBUSY, "later\033[2J"});
  const auto receive = [&] { decode<Ready>(frame, MessageKind::ready, "the server"); };
  EXPECT_EQ(errno_of(receive), EBUSY);
  const std::string text = gpusock::test::error_of<gpusock::Error>(receive);
  EXPECT_NE(text.find("the server refuses: later?[2J"), std::string::npos) << text;
}

TEST(ControlMessage, ARefusalsErrorIsOneOrElseProtocol) {
  for (const std::int32_t error : {0, -1, 4096, INT32_MIN}) {
    const Frame frame = frame_of(MessageKind::refused, Refusal{error, "no"});
    EXPECT_EQ(errno_of([&] { decode<Ready>(frame, MessageKind::ready, "it"); }), EPROTO);
  }
}

TEST(ControlMessage, ATextOfAnyBytesFitsInAMessageAndIsPrintable) {
  const auto received = [](const std::string& text) {
    const std::string bytes = encode(MessageKind::ready, Ready{1, printable(text)});
    EXPECT_LE(bytes.size(), sizeof(Header) + kBodyBytesMax);
    return decode<Ready>({MessageKind::ready, bytes.substr(sizeof(Header))}, MessageKind::ready, "it").device;
  };
  EXPECT_EQ(received("a \xff\n\x7f b"), "a ??? b");
  EXPECT_EQ(received(std::string(5000, '"')), std::string(kTextBytesMax, '"'));
  EXPECT_NE(encode(MessageKind::refused, Refusal{EBUSY, "\xff"}), "");  // dump() throws only if it is told to
}

TEST(ControlMessage, TheLongestRequestFitsInAMessage) {
  Job job = usual_job();
  job.bytes = job.warmup = job.messages_max = job.duration_ns = job.limit_ns = job.token = ~std::uint64_t{0};
  EXPECT_LE(encode(MessageKind::round, RoundRequest{Entrant{~0u}, job}).size(), sizeof(Header) + kBodyBytesMax);
}

}  // namespace
}  // namespace bench
