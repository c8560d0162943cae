// Bytes from the wire: what a rank can have sent is taken, and whatever is taken can be gone by.
#include "param_sync/membership/messages.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace membership_test {
namespace {

using namespace param_sync::membership;

constexpr std::uint64_t kRun = 42;
constexpr Ids kEveryone = 0b10111;

gpusock::ResolvedEndpoint address(std::uint16_t port) {
  gpusock::ResolvedEndpoint at;
  at.family = 4;
  at.port = port;
  return at;
}

Message hello() {
  Message message;
  message.from = 1;
  message.view = {1, kEveryone};
  message.highest = 0x302;
  message.undecided = {{0x302, 0b110}};
  message.listens = {address(7)};
  return message;
}

Message proposal() {
  Message message;
  message.kind = Kind::proposal;
  message.from = 1;
  message.view = {0x401, 0b10110};
  message.base = {1, kEveryone};
  message.listens = {address(7), address(8), address(9)};
  return message;
}

std::optional<Message> taken(const Message& message, std::uint64_t run = kRun) {
  return unpack(pack(message, run), kRun, kEveryone);
}

/// A message with something changed.
template <class Change>
Message changed(Message message, Change change) {
  change(message);
  return message;
}

TEST(MembershipMessages, ArriveAsTheyWereSent) {
  const auto a = taken(hello());
  ASSERT_TRUE(a);
  EXPECT_EQ(a->view, hello().view);
  EXPECT_EQ(a->highest, hello().highest);
  EXPECT_EQ(a->undecided, hello().undecided);
  EXPECT_EQ(a->listens, hello().listens);
  const auto b = taken(proposal());
  ASSERT_TRUE(b);
  EXPECT_EQ(b->view, proposal().view);
  EXPECT_EQ(b->base, proposal().base);
  EXPECT_EQ(b->listens, proposal().listens);
}

TEST(MembershipMessages, OfOtherRunsAndProgramsAreRefused) {
  EXPECT_FALSE(taken(hello(), kRun + 1));
  EXPECT_FALSE(unpack(Packet{}, kRun, kEveryone));
  Packet packet = pack(hello(), kRun);
  packet.kind = kKinds;
  EXPECT_FALSE(unpack(packet, kRun, kEveryone));
  packet = pack(hello(), kRun);
  packet.undecided_count = kUndecidedMax + 1;
  EXPECT_FALSE(unpack(packet, kRun, kEveryone));
}

TEST(MembershipMessages, ThatNoRankSendsAreRefused) {
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.from = 3; }))) << "no rank of this run";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.from = 64; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.members = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.members = 0b101; }))) << "not in its own view";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.members |= 8; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.number = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.number = ~0ull; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.highest = ~0ull; }))) << "the next number would wrap";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.undecided[0].members = 8; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.listens[0].port = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.listens[0].family = 5; })));
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.view.members = 0b10100; }))) << "without the coordinator";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.view.number = 0x402; }))) << "another rank's number";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.base.members = 0b110; }))) << "not of its base";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.listens.pop_back(); })));
  EXPECT_FALSE(taken(changed(Message{}, [](Message& it) { it.kind = Kind::redirect, it.candidate = 3; })));
}

TEST(MembershipMessages, OfChangedBytesAreCheckedWhole) {
  std::mt19937_64 random(1);
  int taken_ones = 0;
  for (int turn = 0; turn < 50'000; ++turn) {
    Packet packet = pack(random() % 2 == 0 ? hello() : proposal(), kRun);
    unsigned char bytes[sizeof packet];
    std::memcpy(bytes, &packet, sizeof packet);
    for (std::uint64_t changes = 1 + random() % 3; changes != 0; --changes) {
      const std::size_t head = offsetof(Packet, undecided) + 64;  // most fields are there
      bytes[random() % (random() % 4 == 0 ? sizeof bytes : head)] ^= static_cast<unsigned char>(1u << random() % 8);
    }
    std::memcpy(&packet, bytes, sizeof packet);
    const auto message = unpack(packet, kRun, kEveryone);
    if (!message) continue;
    ++taken_ones;
    EXPECT_TRUE(has(kEveryone, message->from));
    EXPECT_LE(message->highest, kNumberMax);
    for (const Outline& one : message->undecided) EXPECT_TRUE(is_outline(one, kEveryone));
    if (message->kind == Kind::hello || message->kind == Kind::proposal) {
      EXPECT_TRUE(is_outline(message->view, kEveryone));
      EXPECT_EQ(message->listens.size(), message->kind == Kind::hello ? 1 : count(message->view.members));
      for (const auto& at : message->listens) EXPECT_NE(at.port, 0);
    }
  }
  EXPECT_GT(taken_ones, 1'000) << "too few are taken to show anything";
}

}  // namespace
}  // namespace membership_test
