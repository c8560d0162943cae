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

Addresses address(std::uint16_t port) {
  Addresses at;
  at.meets.family = at.listens.family = 4;
  at.meets.port = port;
  at.listens.port = static_cast<std::uint16_t>(port + 100);
  return at;
}

Message hello() {
  Message message;
  message.from = 1;
  message.view = {1, kEveryone};
  message.highest = 0x302;
  message.undecided = {{0x302, 0b110}};
  message.ids = 5;
  message.unreached = 0b101;
  message.addresses = {address(7)};
  return message;
}

Message proposal() {
  Message message;
  message.kind = Kind::proposal;
  message.from = 1;
  message.view = {0x401, 0b10110};
  message.base = {1, kEveryone};
  message.ids = 6;
  message.addresses = {address(7), address(8), address(9)};
  return message;
}

std::optional<Message> taken(const Message& message, std::uint64_t run = kRun) {
  return unpack(pack(message, run), kRun);
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
  EXPECT_EQ(a->addresses, hello().addresses);
  EXPECT_EQ(a->ids, 5);
  EXPECT_EQ(a->unreached, 0b101u);
  const auto b = taken(proposal());
  ASSERT_TRUE(b);
  EXPECT_EQ(b->view, proposal().view);
  EXPECT_EQ(b->base, proposal().base);
  EXPECT_EQ(b->addresses, proposal().addresses);
}

TEST(MembershipMessages, OfOtherRunsAndProgramsAreRefused) {
  EXPECT_FALSE(taken(hello(), kRun + 1));
  EXPECT_FALSE(unpack(Packet{}, kRun));
  Packet packet = pack(hello(), kRun);
  packet.kind = kKinds;
  EXPECT_FALSE(unpack(packet, kRun));
  packet = pack(hello(), kRun);
  packet.undecided_count = kUndecidedMax + 1;
  EXPECT_FALSE(unpack(packet, kRun));
}

TEST(MembershipMessages, ThatNoRankSendsAreRefused) {
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.from = 64; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.members = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.members = 0b101; }))) << "not in its own view";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.ids = 4; }))) << "a member's id was not given";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.number = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.view.number = ~0ull; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.highest = ~0ull; }))) << "the next number would wrap";
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.undecided[0].members = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.addresses[0].listens.port = 0; })));
  EXPECT_FALSE(taken(changed(hello(), [](Message& it) { it.addresses[0].meets.family = 5; })));
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.view.members = 0b10100; }))) << "without the coordinator";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.view.number = 0x402; }))) << "another rank's number";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.base.members = 0b110, it.ids = 4; }))) << "new ids";
  EXPECT_FALSE(taken(changed(proposal(), [](Message& it) { it.addresses.pop_back(); })));
  EXPECT_FALSE(taken(changed(Message{}, [](Message& it) { it.kind = Kind::redirect, it.candidate = 65; })));
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
    const auto message = unpack(packet, kRun);
    if (!message) continue;
    ++taken_ones;
    EXPECT_TRUE(message->from >= 0 && message->from < kIdsMax);
    EXPECT_LE(message->highest, kNumberMax);
    for (const Outline& one : message->undecided) EXPECT_TRUE(is_outline(one));
    if (message->kind == Kind::hello || message->kind == Kind::proposal) {
      EXPECT_TRUE(is_outline(message->view));
      const auto addresses = static_cast<int>(message->addresses.size());
      EXPECT_TRUE(message->kind == Kind::hello ? addresses >= 1 : addresses == count(message->view.members));
      for (const auto& at : message->addresses) EXPECT_TRUE(at.meets.port != 0 && at.listens.port != 0);
    }
  }
  EXPECT_GT(taken_ones, 1'000) << "too few are taken to show anything";
}

}  // namespace
}  // namespace membership_test
