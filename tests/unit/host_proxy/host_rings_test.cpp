// Ring memory that processes share by a name: who gets which slot, what peers may claim, and what is left of those that
// die.
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/error.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/unit/host_proxy/other_process.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::proxy {
namespace {

constexpr std::uint64_t kSlotRing = 4096;
constexpr std::uint64_t kNoEnd = ~std::uint64_t{0};
constexpr int kSkipped = 77;
using SlotLocator = HostRings::SlotLocator;

class HostRingsTest : public testing::Test {
 protected:
  ~HostRingsTest() override { EXPECT_NE(access(path_.c_str(), F_OK), 0) << "the last user removes the file"; }

  std::shared_ptr<HostRings> open(std::uint32_t connections = 2, std::uint64_t rest_ns = 0) {
    return std::make_shared<HostRings>(platform_, settings(connections, rest_ns));
  }
  HostRings::Settings settings(std::uint32_t connections = 2, std::uint64_t rest_ns = 0) const {
    return {name_, connections, kSlotRing, rest_ns};
  }
  static int error_of(const std::function<void()>& act) {
    try {
      act();
      return 0;
    } catch (const Error& error) {
      return error.code().value();
    }
  }
  static std::string text_of(const std::function<void()>& act) {
    try {
      act();
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }
  /// A file under this name that somebody else has put there.
  void put(int mode, const std::string& text = "") {
    const Descriptor file(::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
    ASSERT_TRUE(file);
    EXPECT_EQ(fchmod(file.get(), static_cast<mode_t>(mode)), 0);
    EXPECT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  std::shared_ptr<Platform> platform_ = std::make_shared<HostPlatform>();
  std::string name_ = "test-" + std::to_string(getpid());
  std::string path_ = HostRings::path_of(name_);
};

TEST_F(HostRingsTest, MakerAndPeerUseOneMemory) {
  const auto here = open(), there = open();
  SlotLocator locator;
  const auto maker = here->take(kSlotRing, locator);
  ASSERT_NE(maker, nullptr);
  EXPECT_FALSE(here->was_joined(locator));
  const auto peer = there->join(locator);
  EXPECT_TRUE(here->was_joined(locator));
  EXPECT_EQ(peer->ring_bytes(), kSlotRing);
  EXPECT_NE(&maker->header(), &peer->header()) << "each maps it by itself";
  maker->header().tx_committed.value = 7;
  maker->callers_rings().tx.data[kSlotRing - 1] = std::byte{42};
  EXPECT_EQ(peer->header().tx_committed.value, 7u);
  EXPECT_EQ(peer->callers_rings().tx.data[kSlotRing - 1], std::byte{42});
}

TEST_F(HostRingsTest, SlotsDoNotOverlap) {
  const auto rings = open(2);
  SlotLocator one, other;
  const auto first = rings->take(kSlotRing, one), second = rings->take(kSlotRing, other);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  const auto distance = reinterpret_cast<std::byte*>(&second->header()) -
                        reinterpret_cast<std::byte*>(&first->header());
  EXPECT_GE(static_cast<std::size_t>(std::abs(distance)), Segment::total_bytes(kSlotRing));
}

TEST_F(HostRingsTest, ASlotIsFreeWhenBothHaveGivenItBack) {
  for (const int turn : {0, 1, 2, 3}) {
    const bool maker_first = turn % 2 == 0;
    const std::uint64_t rest_ns = turn < 2 ? 0 : kNoEnd;  // 0: the locks alone; else: both must have said so
    const auto here = open(1, rest_ns), there = open(1, rest_ns);
    SlotLocator locator, next;
    auto maker = here->take(kSlotRing, locator), peer = there->join(locator);
    for (const auto& rings : {here, there}) {
      EXPECT_EQ(rings->take(kSlotRing, next), nullptr);
      EXPECT_EQ(next.state, SlotLocator::kNoneFree);
    }
    (maker_first ? maker : peer).reset();
    for (const auto& rings : {here, there}) EXPECT_EQ(rings->take(kSlotRing, next), nullptr) << "one of them uses it";
    (maker_first ? peer : maker).reset();
    EXPECT_NE((maker_first ? there : here)->take(kSlotRing, next), nullptr);
  }
}

TEST_F(HostRingsTest, ASlotIsLikeNewWhenItIsTakenAgain) {
  const auto rings = open(1);
  SlotLocator locator;
  auto first = rings->take(kSlotRing, locator);
  first->header().rx_committed.value = 7;
  first.reset();
  EXPECT_EQ(rings->take(kSlotRing, locator)->header().rx_committed.value, 0u);
}

TEST_F(HostRingsTest, OneContextMayBeMakerAndPeer) {
  const auto rings = open(1);
  SlotLocator locator;
  auto maker = rings->take(kSlotRing, locator), peer = rings->join(locator);
  maker.reset();
  SlotLocator next;
  EXPECT_EQ(rings->take(kSlotRing, next), nullptr);
  peer.reset();
  EXPECT_NE(rings->take(kSlotRing, next), nullptr);
}

TEST_F(HostRingsTest, RingsMayBeSmallerThanTheirRoomAndNotLarger) {
  const auto large = std::make_shared<HostRings>(platform_, HostRings::Settings{name_, 1, 4 * kSlotRing, 0});
  const auto small = open();  // it takes what is there
  EXPECT_EQ(small->room_bytes(), 4 * kSlotRing);
  EXPECT_EQ(small->connections(), 1u);
  SlotLocator locator;
  EXPECT_EQ(large->take(8 * kSlotRing, locator), nullptr);
  EXPECT_EQ(locator.state, SlotLocator::kTooSmall);
  const auto maker = large->take(kSlotRing, locator);
  EXPECT_EQ(maker->ring_bytes(), kSlotRing);
  EXPECT_EQ(small->join(locator)->ring_bytes(), kSlotRing);
}

TEST_F(HostRingsTest, ALyingPeerGetsNothing) {
  const auto here = open(2), there = open(2);
  SlotLocator locator;
  auto maker = here->take(kSlotRing, locator);
  const auto refused = [&](auto change) {
    SlotLocator lie = locator;
    change(lie);
    return error_of([&] { there->join(lie); });
  };
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.file[3] ^= 1; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.ticket[3] ^= 1; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.slot ^= 1; }), EPROTO) << "it has not taken that one";
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.slot = 2; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.slot = ~0u; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.ring_bytes = 2 * kSlotRing; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.ring_bytes = kSlotRing - 1; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.ring_bytes = 0; }), EPROTO);
  EXPECT_EQ(refused([](SlotLocator& lie) { lie.state = SlotLocator::kNoneFree; }), EPROTO);
  EXPECT_FALSE(here->was_joined(locator));
  {
    const auto peer = there->join(locator);
    EXPECT_EQ(refused([](SlotLocator&) {}), EPROTO) << "it is joined";
  }
  maker.reset();
  EXPECT_EQ(refused([](SlotLocator&) {}), EPROTO) << "it was given back";
  SlotLocator next;
  maker = here->take(kSlotRing, next);
  EXPECT_EQ(refused([](SlotLocator&) {}), EPROTO) << "it is of an earlier use";
}

TEST_F(HostRingsTest, ALookDisturbsNobody) {
  EXPECT_FALSE(HostRings::look_at(path_));
  auto here = open(4);
  const auto there = open(4);
  SlotLocator locator, other;
  auto maker = here->take(kSlotRing, locator);
  const auto peer = there->join(locator);
  for (int i = 0; i < 2; ++i) {
    const auto look = HostRings::look_at(path_);
    ASSERT_TRUE(look);
    EXPECT_EQ(look->connections, 4u);
    EXPECT_EQ(look->in_use, 1u);
    EXPECT_EQ(look->left_by_dead, 0u);
    EXPECT_EQ(look->room_bytes, kSlotRing);
    EXPECT_TRUE(look->has_users);
    EXPECT_TRUE(look->members.empty());
  }
  const auto second = there->take(kSlotRing, other);
  EXPECT_EQ(HostRings::look_at(path_)->in_use, 2u);
  maker.reset();
  EXPECT_EQ(HostRings::look_at(path_)->in_use, 2u) << "the peer has it still";
}

TEST_F(HostRingsTest, ALookAtWhatIsNoneOfOursSaysSo) {
  put(0644, "x");
  EXPECT_EQ(error_of([&] { HostRings::look_at(path_); }), EACCES);
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { HostRings::look_at(path_); }), EPROTO);
  ASSERT_EQ(unlink(path_.c_str()), 0);
}

TEST_F(HostRingsTest, WhatAKilledProcessHadIsFreeAgain) {
  const auto rings = open(1);
  SlotLocator locator;
  OtherProcess other([this] {
    static auto its = open(1);
    static SlotLocator its_locator;
    static auto segment = its->take(kSlotRing, its_locator);
  });
  EXPECT_EQ(rings->take(kSlotRing, locator), nullptr);
  other.stop();
  EXPECT_EQ(rings->take(kSlotRing, locator), nullptr) << "a stopped process still has it";
  other.end();
  EXPECT_NE(rings->take(kSlotRing, locator), nullptr);
}

TEST_F(HostRingsTest, WhatAKilledPeerHadIsTheMakersUntilItGivesItBack) {
  const auto rings = open(1);
  SlotLocator locator, next;
  auto maker = rings->take(kSlotRing, locator);
  OtherProcess other([&] {
    static auto its = open(1);
    static auto segment = its->join(locator);
    segment->header().rx_committed.value = 9;
  });
  other.end();
  EXPECT_EQ(maker->header().rx_committed.value, 9u) << "still there to be read";
  EXPECT_EQ(open(1)->take(kSlotRing, next), nullptr);
  maker.reset();
  EXPECT_NE(rings->take(kSlotRing, next), nullptr);
}

TEST_F(HostRingsTest, TheSlotOfADeadProcessRests) {
  const auto rings = open(1, kNoEnd);
  for (const bool as_peer : {false, true}) {
    SlotLocator locator;
    const auto spare = std::make_shared<HostRings>(platform_, settings());
    auto maker = as_peer ? rings->take(kSlotRing, locator) : nullptr;
    OtherProcess([&] {
      static auto its = open(1);
      static auto segment = as_peer ? its->join(locator) : its->take(kSlotRing, locator);
    }).end();
    maker.reset();
    EXPECT_EQ(HostRings::look_at(path_)->left_by_dead, 1u);
    EXPECT_EQ(rings->take(kSlotRing, locator), nullptr) << "its kernels may still write";
    EXPECT_NE(open(1, 0)->take(kSlotRing, locator), nullptr) << "no rest is needed here";
  }
}

TEST_F(HostRingsTest, TheRestOfADeadPeersSlotBeginsWhenTheMakerGivesItBack) {
  constexpr std::uint64_t kShortRest = 1;  // has passed if it began before
  const auto rings = open(1, kShortRest);
  SlotLocator locator;
  auto maker = rings->take(kSlotRing, locator);
  OtherProcess([&] {
    static auto its = open(1);
    static auto segment = its->join(locator);
  }).end();
  maker.reset();
  EXPECT_NE(rings->take(kSlotRing, locator), nullptr) << "whenever it is asked for";
}

TEST_F(HostRingsTest, AForkedChildKeepsNothing) {
  auto rings = open(1);
  SlotLocator locator;
  auto segment = rings->take(kSlotRing, locator);
  const OtherProcess child([&] { rings->leave_to_parent(); });
  EXPECT_EQ(open(1)->take(kSlotRing, locator), nullptr);
  segment.reset();
  rings.reset();
  EXPECT_NE(open(1)->take(kSlotRing, locator), nullptr);
}

TEST_F(HostRingsTest, TheFileOfProcessesThatDiedIsReplaced) {
  OtherProcess([this] { static auto its = open(7); }).end();
  EXPECT_FALSE(HostRings::look_at(path_)->has_users);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  EXPECT_EQ(open(3)->connections(), 3u) << "a new one";
}

TEST_F(HostRingsTest, AFileThatOthersMayOpenIsNotUsed) {
  put(0640);
  EXPECT_EQ(error_of([this] { open(); }), EACCES);
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(error_of([this] { open(); }), EACCES);
  unlink(path_.c_str());
  put(0600);
  const std::string elsewhere = path_ + "-elsewhere";
  ASSERT_EQ(rename(path_.c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(symlink(elsewhere.c_str(), path_.c_str()), 0);
  EXPECT_EQ(error_of([this] { open(); }), EACCES);
  unlink(path_.c_str());
  unlink(elsewhere.c_str());
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(error_of([this] { open(); }), EACCES);
  rmdir(path_.c_str());
}

TEST_F(HostRingsTest, WhatIsNoFileIsNotSaidToBeAnotherUsers) {
  const std::function<int()> makers[] = {[this] { return mkfifo(path_.c_str(), 0600); },
                                         [this] { return mkdir(path_.c_str(), 0700); }};
  for (const auto& make : makers) {
    ASSERT_EQ(make(), 0);
    for (const std::string& error :
         {text_of([this] { open(); }), text_of([this] { (void)HostRings::look_at(path_); })}) {
      EXPECT_NE(error.find("it is no file of gpusock's; remove it"), std::string::npos) << error;
    }
    ASSERT_EQ(remove(path_.c_str()), 0);
  }
}

TEST_F(HostRingsTest, AFileOfAnotherVersionIsNotUsed) {
  const std::string text(64, 'x');
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{8192}}) {
    const NamedFile user(path_, bytes, std::as_bytes(std::span(text)).first(std::min(bytes, text.size())));
    EXPECT_EQ(error_of([this] { open(); }), EPROTO) << bytes;
  }
  put(0600, text);
  EXPECT_EQ(error_of([this] { open(); }), 0) << "nobody uses it: it is replaced";
}

TEST_F(HostRingsTest, WithoutDescriptorsTheErrorSaysWhatToRaise) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string text = text_of([this] { open(); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
}

TEST(NamedFileErrors, AFolderThatIsMissingIsNamedWithWhatToDo) {
  try {
    const NamedFile file("/nonexistent/file", 4096, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent must be a tmpfs that this user may write to"),
              std::string::npos)
        << error.what();
  }
}

/// True if this process now has mounts that no other one sees.
bool have_own_mounts() {
  const std::string map = "0 " + std::to_string(geteuid()) + " 1";
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    const Descriptor file(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    if (write(file.get(), map.data(), map.size()) != static_cast<ssize_t>(map.size())) return false;
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

/// Ends a process of its own, in which nothing but the root of a file system is at `folder`: with 0 if the error of
/// making a file says what is expected.
[[noreturn]] void make_file_beside(const char* folder, unsigned long flags, const std::string& expected) {
  if (!have_own_mounts() || mount("none", folder, "tmpfs", flags, nullptr) != 0) _exit(kSkipped);
  try {
    const NamedFile file("/dev/shm/gpusock-test-" + std::to_string(getpid()), 4096, {});
    std::fputs("it was made\n", stderr);
  } catch (const Error& error) {
    if (std::string(error.what()).find(expected) != std::string::npos) _exit(0);
    std::fprintf(stderr, "%s\n", error.what());
  }
  _exit(1);
}

TEST(NamedFileErrors, AMachineWithoutProcOrWhoseSharedMemoryIsReadOnlyIsToldWhatToDo) {
  struct {
    const char* folder;
    unsigned long flags;
    const char* expected;
  } const cases[] = {{"/proc", 0, "/proc must be mounted (mount -t proc proc /proc)"},
                     {"/dev/shm", MS_RDONLY, "/dev/shm must be a tmpfs that this user may write to"}};
  for (const auto& each : cases) {
    const pid_t child = fork();
    if (child == 0) make_file_beside(each.folder, each.flags, each.expected);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mounts of its own are to be had";
    EXPECT_EQ(status, 0) << each.folder;
  }
}

TEST_F(HostRingsTest, InvalidSettingsAreRefused) {
  for (const char* name : {"", "a/b", "..\n", "a b"}) {
    EXPECT_EQ(error_of([&] { HostRings(platform_, {name, 1, kSlotRing, 0}); }), EINVAL) << name;
  }
  EXPECT_EQ(error_of([&] { HostRings(platform_, {std::string(65, 'a'), 1, kSlotRing, 0}); }), EINVAL);
  EXPECT_EQ(error_of([&] { HostRings(platform_, {name_, 0, kSlotRing, 0}); }), EINVAL);
  EXPECT_EQ(error_of([&] { HostRings(platform_, {name_, 4097, kSlotRing, 0}); }), EINVAL);
  EXPECT_EQ(error_of([&] { HostRings(platform_, {name_, 1, kSlotRing + 1, 0}); }), EINVAL);
}

/// Contexts come and go at once; those that meet use one file, and each slot has one pair of users.
TEST_F(HostRingsTest, ManyComeAndGoAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int turn = 0; turn < 50; ++turn) {
        const auto here = open(2), there = open(2);
        SlotLocator locator;
        const auto maker = here->take(kSlotRing, locator);
        if (maker == nullptr) continue;
        maker->header().tx_committed.value = 1;
        const auto peer = there->join(locator);
        EXPECT_EQ(peer->header().tx_committed.value, 1u);
        peer->header().tx_consumed.value = 1;
        EXPECT_EQ(maker->header().tx_consumed.value, 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpusock::proxy
