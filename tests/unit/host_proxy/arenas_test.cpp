// Rings in a GPU's memory for several processes: who reaches whose, what members may claim, and what is left of those
// that die.
#include "gpusock/error.hpp"
#include "host_proxy/links/p2p/arena_exchange.hpp"
#include "host_proxy/links/p2p/segment_exchange.hpp"
#include "host_proxy/links/p2p/unix_socket.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/unit/host_proxy/other_process.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock::proxy {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kArenaRing = 4096;
constexpr std::size_t kAllMemory = std::numeric_limits<std::size_t>::max();
const std::string kSocketName(32, 'a');

class ArenasTest : public testing::Test {
 protected:
  /// A context; those of one process are to each other as those of several.
  struct User {
    std::shared_ptr<PinningPlatform> platform;
    std::shared_ptr<HostRings> rings;
    Arenas& arenas() const { return rings->arenas(); }
    const Arenas::Id& id() const { return arenas().own_id(); }
  };
  static std::shared_ptr<PinningPlatform> gpu(int number = 0) {
    auto platform = std::make_shared<PinningPlatform>();
    platform->is_gpu = platform->shares = true;
    platform->number = number;
    return platform;
  }
  User open(std::shared_ptr<PinningPlatform> platform = gpu()) const {
    return {platform, std::make_shared<HostRings>(platform, HostRings::Settings{name_, 2, kArenaRing, 0})};
  }
  /// Those who answer are these.
  static Arenas::Fetch from(std::vector<const User*> others) {
    return [others](const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds) {
      std::vector<Arenas::Fetched> got(asked.size());
      for (std::size_t i = 0; i < asked.size(); ++i) {
        for (const User* other : others) {
          if (other->id() == asked[i].id) got[i].arena.reset(dup(other->arenas().descriptor()));
        }
      }
      return got;
    };
  }
  User enter(std::vector<const User*> others = {}, std::shared_ptr<PinningPlatform> platform = gpu()) const {
    User user = open(std::move(platform));
    user.arenas().enter(kSocketName, kAllMemory, from(others));
    user.arenas().give_to_other_gpus(to(others));
    return user;
  }
  /// Those who take what is given are these.
  static Arenas::Give to(std::vector<const User*> others) {
    return [others](const std::vector<Arenas::Asked>& asked, const Arenas::Id& giver, int descriptor,
                    std::chrono::nanoseconds) {
      std::vector<Arenas::Taken> answers;
      for (const Arenas::Asked& each : asked) {
        answers.push_back(Arenas::Taken::no_answer);
        for (const User* other : others) {
          if (other->id() == each.id) answers.back() = other->arenas().take(giver, Descriptor(dup(descriptor)));
        }
      }
      return answers;
    };
  }
  /// The one arena that the two use in this slot.
  static std::optional<Arenas::Id> shared_by(const User& user, const Arenas::Id& other, std::uint32_t slot) {
    const auto meeting = user.arenas().meeting_with(other, slot);
    return meeting && meeting->own == meeting->others ? std::optional(meeting->own) : std::nullopt;
  }
  static void expect_none(const User& one, const User& other, const std::string& why) {
    EXPECT_FALSE(one.arenas().meeting_with(other.id(), 0));
    EXPECT_EQ(one.arenas().why_not(other.id(), 0), "the peer is another process, " + why);
  }

  std::string name_ = "arenas-test-" + std::to_string(getpid());
};

TEST_F(ArenasTest, OfTwoContextsBothReachTheArenaOfTheEarlierOne) {
  const User first = enter(), second = enter({&first});
  for (const std::uint32_t slot : {0u, 1u}) {
    EXPECT_EQ(shared_by(second, first.id(), slot), first.id());
    EXPECT_EQ(shared_by(first, second.id(), slot), first.id());
    const auto here = first.arenas().find(first.id(), slot), there = second.arenas().find(first.id(), slot);
    ASSERT_TRUE(here && there);
    EXPECT_NE(here->rings, there->rings) << "each maps it by itself";
    here->rings[2 * kArenaRing - 1] = std::byte{42};
    here->words->tx_committed.value = 7;
    EXPECT_EQ(there->rings[2 * kArenaRing - 1], std::byte{42});
    EXPECT_EQ(there->words->tx_committed.value, 7u);
    EXPECT_FALSE(first.arenas().find(second.id(), slot)) << "nobody maps anything later";
  }
}

TEST_F(ArenasTest, ALookShowsThoseThatLive) {
  const User first = enter(), elsewhere = enter({&first}, gpu(1)), mute = open();
  { const User ended = enter(); }
  const User second = enter({&first});
  const auto members = HostRings::look_at(HostRings::path_of(name_))->members;
  ASSERT_EQ(members.size(), 3u);
  for (const auto& member : members) EXPECT_GE(member.arena_bytes, 2 * 2 * kArenaRing);
  EXPECT_EQ(members[0].device, first.platform->name_on_host());
  EXPECT_EQ(members[1].device, elsewhere.platform->name_on_host());
  EXPECT_EQ(members[2].device, second.platform->name_on_host());
  EXPECT_EQ(members[0].mapped, 0u);
  EXPECT_EQ(members[2].mapped, 1u);
}

TEST_F(ArenasTest, SlotsDoNotOverlap) {
  const User user = enter();
  const auto one = user.arenas().find(user.id(), 0), other = user.arenas().find(user.id(), 1);
  EXPECT_EQ(other->rings - one->rings, static_cast<std::ptrdiff_t>(2 * kArenaRing));
  EXPECT_EQ(other->words - one->words, 1);
  EXPECT_GE(one->rings, reinterpret_cast<std::byte*>(other->words + 1));
  EXPECT_FALSE(user.arenas().find(user.id(), 2));
}

TEST_F(ArenasTest, WhereThereIsNoneTheReasonSaysWhy) {
  const User first = enter(), deaf = enter(), mute = open();
  expect_none(deaf, first, "and neither has mapped the other's memory");
  expect_none(first, deaf, "and neither has mapped the other's memory");
  expect_none(
      first, mute,
      "which shares no GPU memory for this connection: a host thread's, GPUSOCK_RING=host there, or see its log");
  EXPECT_EQ(mute.arenas().why_not(first.id(), 0), "this context shares no GPU memory with other processes");
}

/// What each receives lies in its own GPU's memory.
TEST_F(ArenasTest, ContextsOnTwoGpusReachBothArenas) {
  const User first = enter(), second = enter({&first}, gpu(1));
  for (const std::uint32_t slot : {0u, 1u}) {
    EXPECT_EQ(first.arenas().meeting_with(second.id(), slot), (Arenas::Meeting{first.id(), second.id()}));
    EXPECT_EQ(second.arenas().meeting_with(first.id(), slot), (Arenas::Meeting{second.id(), first.id()}));
    for (const auto& id : {first.id(), second.id()}) {
      const auto here = first.arenas().find(id, slot), there = second.arenas().find(id, slot);
      ASSERT_TRUE(here && there);
      EXPECT_NE(here->rings, there->rings) << "each maps it by itself";
      here->rings[2 * kArenaRing - 1] = std::byte{42};
      there->words->rx_committed.value = 7;
      EXPECT_EQ(there->rings[2 * kArenaRing - 1], std::byte{42});
      EXPECT_EQ(here->words->rx_committed.value, 7u);
    }
  }
  EXPECT_FALSE(first.arenas().meeting_with(second.id(), 2));
  const User small = open(gpu(2));
  small.arenas().enter(kSocketName, 4096 + 2 * kArenaRing, from({&first}));
  small.arenas().give_to_other_gpus(to({&first}));
  for (const auto& [one, other] : {std::pair(&small, &first), std::pair(&first, &small)}) {
    EXPECT_TRUE(one->arenas().meeting_with(other->id(), 0));
    EXPECT_FALSE(one->arenas().meeting_with(other->id(), 1)) << "one of the two arenas has one slot";
    EXPECT_EQ(one->arenas().why_not(other->id(), 1),
              "the peer is another process, and the GPU memory that is shared has no room for more connections");
  }
  const User third = enter({&first, &second}, gpu(1));
  EXPECT_EQ(shared_by(third, second.id(), 0), second.id()) << "on one GPU the earlier one's is enough";
  EXPECT_EQ(shared_by(second, third.id(), 0), second.id());
  EXPECT_EQ(third.arenas().meeting_with(first.id(), 0), (Arenas::Meeting{third.id(), first.id()}));
}

TEST_F(ArenasTest, ContextsOnTwoGpusThatStayApartKnowWhy) {
  const std::string on_other = "on another GPU: ";
  const User busy = enter();
  busy.platform->kernels_run = true;
  const User late = enter({&busy}, gpu(1));
  expect_none(late, busy, on_other + "its kernels ran when this context was made: make all contexts first");
  expect_none(busy, late, on_other + "kernels of this process ran when that context was made: make all contexts first");
  const auto short_sighted = gpu(2);
  short_sighted->reaches_others = false;
  const User apart = enter({&busy, &late}, short_sighted);
  expect_none(apart, busy, on_other + "it is out of reach");
  expect_none(late, apart, on_other + "it has given no memory to this process (its log says why)");
  late.platform->reaches_others = false;
  const User refused = enter({&late}, gpu(3));
  expect_none(refused, late, on_other + "it cannot map this GPU's memory (its log says why)");
  expect_none(late, refused, on_other + "it is out of reach");
  expect_none(refused, busy, on_other + "it did not answer");
  const User unheard = open(gpu(4));
  unheard.arenas().enter(kSocketName, kAllMemory, from({&late}));
  unheard.arenas().give_to_other_gpus(to({}));
  expect_none(unheard, late, on_other + "it did not answer when this context was made");
}

TEST_F(ArenasTest, OnlyAnArenaOfAMemberOnAnotherGpuIsTaken) {
  using Taken = Arenas::Taken;
  const User first = enter(), beside = enter(), other = enter({}, gpu(1)), mute = open();
  const int given = other.arenas().descriptor();
  const auto give = [](const User& to, const Arenas::Id& giver, int descriptor) {
    return to.arenas().take(giver, Descriptor(dup(descriptor)));
  };
  const int attached = first.platform->attached;
  EXPECT_EQ(give(first, Arenas::Id{1}, given), Taken::refused) << "nobody has this id";
  EXPECT_EQ(give(first, Arenas::kNobody, given), Taken::refused);
  EXPECT_EQ(give(first, beside.id(), beside.arenas().descriptor()), Taken::refused) << "it is on the same GPU";
  EXPECT_EQ(give(first, other.id(), beside.arenas().descriptor()), Taken::refused) << "it is another one's";
  EXPECT_EQ(give(first, other.id(), -1), Taken::refused);
  EXPECT_EQ(give(mute, other.id(), given), Taken::refused) << "it is no member itself";
  EXPECT_EQ(first.platform->attached, attached);
  first.platform->kernels_run = true;
  EXPECT_EQ(give(first, other.id(), given), Taken::kernels_ran);
  first.platform->kernels_run = false;
  EXPECT_EQ(give(first, other.id(), given), Taken::mapped) << "what it could not do before it may do later";
  EXPECT_EQ(give(first, other.id(), given), Taken::mapped);
  EXPECT_EQ(first.platform->attached, attached + 1) << "once";
}

TEST_F(ArenasTest, AGpuThatSharesNothingSaysWhy) {
  const auto platform = gpu();
  platform->shares = false;
  const User user = enter({}, platform);
  EXPECT_EQ(user.id(), Arenas::kNobody);
  EXPECT_EQ(user.arenas().why_not({}, 0), "this device has no name on this host");
}

TEST_F(ArenasTest, AnArenaHasAsManySlotsAsItsMemoryAllows) {
  const User one = open(), none = open();
  one.arenas().enter(kSocketName, 4096 + 2 * kArenaRing, from({}));
  EXPECT_TRUE(one.arenas().find(one.id(), 0));
  EXPECT_FALSE(one.arenas().find(one.id(), 1));
  const User second = enter({&one});
  EXPECT_EQ(shared_by(one, second.id(), 0), one.id());
  EXPECT_FALSE(shared_by(one, second.id(), 1));
  EXPECT_EQ(one.arenas().why_not(second.id(), 1),
            "the peer is another process, and the GPU memory that is shared has no room for more connections");
  none.arenas().enter(kSocketName, 2 * kArenaRing, from({}));
  EXPECT_EQ(none.id(), Arenas::kNobody);
  EXPECT_EQ(none.arenas().why_not({}, 0), "no connection's rings fit into the GPU memory that is used");
}

/// An entry of the list with each byte changed: what is mapped is an arena of the right size, or nothing.
TEST_F(ArenasTest, AMemberMayLieInEachByte) {
  const User liar = enter(), honest = enter({&liar});
  const Descriptor file(::open(HostRings::path_of(name_).c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts {};
  ASSERT_EQ(fstat(file.get(), &facts), 0);
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  auto* const all = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(all, MAP_FAILED);
  const auto id = std::as_bytes(std::span(liar.id()));
  std::byte* const entry = std::search(all, all + bytes, id.begin(), id.end());
  ASSERT_NE(entry, all + bytes);
  for (std::size_t at = 0; at < 96 + 16; ++at) {  // all that stands before the ids of those it has mapped
    entry[at] ^= std::byte{0x81};
    const User user = enter({&liar, &honest});
    EXPECT_EQ(shared_by(user, honest.id(), 0), honest.id()) << at;
    const bool says_nothing = (at > 21 && at < 48) || at >= 88;  // after the device's name; what it has mapped itself
    EXPECT_EQ(user.arenas().find(liar.id(), 0).has_value(), says_nothing) << at;
    EXPECT_EQ(shared_by(honest, liar.id(), 0), liar.id()) << "it was mapped before";
    (void)honest.arenas().why_not(liar.id(), 1);
    entry[at] ^= std::byte{0x81};
  }
  munmap(all, bytes);
}

TEST_F(ArenasTest, WhatADeadMemberHadStaysMapped) {
  const User first = enter();
  OtherProcess other([&] {
    static auto its = enter({&first});
    its.arenas().find(first.id(), 1)->rings[0] = std::byte{9};
  });
  EXPECT_EQ(first.arenas().find(first.id(), 1)->rings[0], std::byte{9});
  other.end();
  std::size_t asked_for = 0;
  const User last = open();
  last.arenas().enter(kSocketName, kAllMemory,
                      [&](const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds wait) {
                        asked_for += asked.size();
                        return from({&first})(asked, wait);
                      });
  EXPECT_EQ(asked_for, 1u) << "the dead one is not asked";
  EXPECT_EQ(shared_by(last, first.id(), 0), first.id());
}

/// A quiet server on one GPU, to which clients on another one come and go.
TEST_F(ArenasTest, WhatEndedMembersGaveIsUnmappedWhenTheNextOneGives) {
  const User server = enter();
  const int alone = server.platform->attached;
  const auto has = [&](const Arenas::Id& id) { return server.arenas().find(id, 0).has_value(); };
  const auto comes = [&] { return std::make_optional(enter({&server}, gpu(1))); };
  Arenas::Id before{};
  for (int i = 0; i < 3; ++i) {
    const auto client = comes();
    EXPECT_EQ(server.platform->attached, alone + 1) << i;
    EXPECT_TRUE(has(client->id()));
    EXPECT_FALSE(has(before));
    before = client->id();
  }
  auto connected = comes(), idle = comes();
  const Arenas::Id peer = connected->id(), lives = idle->id();
  HostRings::SlotLocator locator;
  auto common = server.rings->take(kArenaRing, locator);
  auto rings = server.rings->on_device(locator, common, peer);
  ASSERT_NE(rings, nullptr);
  connected.reset();
  const auto gives = [&] { EXPECT_NE(comes()->id(), Arenas::kNobody); };
  gives();
  EXPECT_TRUE(has(peer)) << "a connection uses it";
  EXPECT_TRUE(has(lives)) << "it has not ended";
  rings->start_words();  // the memory is there
  rings.reset();
  EXPECT_TRUE(has(peer)) << "who ends a connection may not unmap";
  server.platform->kernels_run = true;
  gives();
  EXPECT_TRUE(has(peer)) << "unmapping may wait for kernels";
  server.platform->kernels_run = false;
  gives();
  EXPECT_FALSE(has(peer));
  EXPECT_TRUE(has(lives));
  EXPECT_EQ(server.platform->attached, alone + 2) << "that one's, and the last giver's";
}

/// Whoever stops while it enters keeps others waiting for a second, and no longer.
TEST_F(ArenasTest, AProcessThatStopsWhileItEntersIsNotWaitedForForLong) {
  const User user = open();
  OtherProcess other([&] {
    static const NamedFile file(HostRings::path_of(name_), 1, {});
    EXPECT_TRUE(file.try_lock(4, 1)) << "the lock of those who enter";
  });
  other.stop();
  user.arenas().enter(kSocketName, kAllMemory, from({}));
  EXPECT_EQ(user.arenas().why_not({}, 0),
            "another process was making a context with the same host rings and did not go on");
  other.end();
  const User late = enter();
  EXPECT_NE(late.id(), Arenas::kNobody);
}

TEST_F(ArenasTest, TheListHasRoomForAFixedNumber) {
  std::vector<User> users;
  for (std::size_t i = 0; i < Arenas::kMembersMax; ++i) {
    users.push_back(enter());
    ASSERT_NE(users.back().id(), Arenas::kNobody) << i;
  }
  EXPECT_EQ(enter().arenas().why_not({}, 0), "there are 64 contexts with the same host rings");
  users.erase(users.begin() + 5);
  EXPECT_NE(enter().id(), Arenas::kNobody) << "one has gone";
}

TEST_F(ArenasTest, AContextThatCannotEnterLeavesItsNumberToOthers) {
  const User first = enter(), failed = open();
  std::optional<User> second;
  failed.arenas().enter(kSocketName, kAllMemory,
                        [&](const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds wait) {
                          if (second) throw Error(EMFILE, "asking the second context");  // now it has taken its number
                          second = enter({&first});
                          return from({&first})(asked, wait);
                        });
  ASSERT_TRUE(second && second->id() != Arenas::kNobody);
  EXPECT_EQ(failed.id(), Arenas::kNobody);
  EXPECT_NE(failed.arenas().why_not({}, 0).find("asking the second context"), std::string::npos);
  const NamedFile file(HostRings::path_of(name_), 1, {});
  constexpr std::size_t kFirstLock = 4;  // after those of two slots
  EXPECT_TRUE(file.is_locked_elsewhere(kFirstLock + Arenas::lock_of(1)));
  EXPECT_FALSE(file.is_locked_elsewhere(kFirstLock + Arenas::lock_of(2)));
}

TEST_F(ArenasTest, EachUseOfASlotStartsAfterAllThatItsWordsMayHold) {
  const User first = enter(), second = enter({&first});
  std::uint64_t after = 0;
  for (const std::uint64_t sent : {0ull, 1ull << 40, 7ull}) {
    HostRings::SlotLocator locator;
    const auto maker = first.rings->take(kArenaRing, locator), peer = second.rings->join(locator);
    const auto here = first.rings->on_device(locator, maker, first.id());
    const auto there = second.rings->on_device(locator, peer, first.id());
    ASSERT_TRUE(here != nullptr && there != nullptr);
    EXPECT_EQ(here->start(), there->start());
    EXPECT_GT(here->start(), after);
    EXPECT_EQ(here->placement(), RingPlacement::device);
    EXPECT_EQ(here->ring_bytes(), kArenaRing);
    EXPECT_NE(here->device_words(), nullptr);
    there->start_words();
    EXPECT_EQ(here->header().rx_committed.value, here->start());
    after = here->header().tx_consumed.value = here->start() + sent;
    if (sent == 7) here->header().tx_consumed.value = ~std::uint64_t{0};
    first.rings->take(kArenaRing, locator);  // the other slot, so that this one comes next
  }
  HostRings::SlotLocator locator;
  const auto spoiled = first.rings->take(kArenaRing, locator);
  EXPECT_EQ(first.rings->on_device(locator, spoiled, first.id()), nullptr) << "no start is after such a word";
}

/// A stopped process: it has accepted nothing, and does not answer.
TEST_F(ArenasTest, DescriptorsComeFromThoseThatAnswer) {
  PosixNetwork network;
  SegmentOffers answers(network), silent(network);
  const Descriptor file(cpu_device::make_device_memory_file(kArenaRing, 0));
  const Ticket ticket{1}, wrong{2};
  answers.offer_for_good(ticket, file.get(), [](const Ticket&, Descriptor, Descriptor) { ADD_FAILURE(); });
  std::atomic<bool> ends = false;
  std::thread server([&] {
    while (!ends) {
      network.poll();
      answers.serve();
    }
  });
  for (int turn = 0; turn < 2; ++turn) {  // for good: more than once
    const auto got = fetch_descriptors({{answers.name(), ticket}, {answers.name(), wrong}, {kSocketName, ticket}}, 60s);
    EXPECT_TRUE(got[0].arena);
    EXPECT_EQ(cpu_device::gpu_of_device_memory(got[0].arena.get(), kArenaRing), 0);
    EXPECT_FALSE(got[1].arena) << "it has no such ticket";
    EXPECT_FALSE(got[2].arena) << "there is no such socket";
    for (const Arenas::Fetched& each : got) EXPECT_FALSE(each.lacks_descriptor);
  }
  const auto got = fetch_descriptors({{silent.name(), ticket}}, 10ms);
  EXPECT_FALSE(got[0].arena);
  EXPECT_FALSE(got[0].lacks_descriptor);
  ends = true;
  server.join();
}

/// Both before it asks, and when the answer comes.
TEST_F(ArenasTest, AProcessWithoutDescriptorsDoesNotBlameTheOther) {
  PosixNetwork network;
  SegmentOffers other(network);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor from(pair[0]), to(pair[1]);
  ASSERT_TRUE(send_descriptor(from.get(), from.get()));
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto got = fetch_descriptors({{other.name(), Ticket{1}}}, 10ms);
  const auto answers = give_descriptor({{other.name(), Ticket{1}}}, Ticket{2}, to.get(), 10ms);
  std::array<std::byte, 1> byte{};
  const ReceivedMessage message = receive_message(to.get(), byte);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(got[0].lacks_descriptor);
  EXPECT_EQ(answers[0], Arenas::Taken::not_asked);
  EXPECT_EQ(message.error, EMFILE);
}

TEST_F(ArenasTest, WhereThisProcessHadNoDescriptorLeftTheReasonSaysSo) {
  const std::string why =
      "on another GPU: this process had no descriptor left for it when this context was made: raise "
      "the limit on open files (ulimit -n)";
  const User first = enter();
  const User asks_none = open(gpu(1)), gives_none = open(gpu(2));
  asks_none.arenas().enter(kSocketName, kAllMemory, [](const std::vector<Arenas::Asked>& asked, auto) {
    std::vector<Arenas::Fetched> got(asked.size());
    for (Arenas::Fetched& each : got) each.lacks_descriptor = true;
    return got;
  });
  expect_none(asks_none, first, why);
  gives_none.arenas().enter(kSocketName, kAllMemory, from({&first}));
  gives_none.arenas().give_to_other_gpus([](const std::vector<Arenas::Asked>& to, auto, auto, auto) {
    return std::vector<Arenas::Taken>(to.size(), Arenas::Taken::not_asked);
  });
  expect_none(gives_none, first, why);
}

}  // namespace
}  // namespace gpusock::proxy
