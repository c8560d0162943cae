// Ring memory from another process is taken only if it is what was agreed, and cannot shrink under the mapping.
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/memory_copier.hpp"
#include "gpusock/error.hpp"
#include "host_proxy/memory/segment.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace gpusock::proxy {
namespace {

constexpr std::uint64_t kRing = 64 << 10;

int memory_file(std::uint64_t bytes, int seals, mode_t mode = 0600) {
  const int descriptor = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(fchmod(descriptor, mode), 0);
  EXPECT_EQ(ftruncate(descriptor, static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(descriptor, F_ADD_SEALS, seals), 0);
  }
  return descriptor;
}

class SegmentTest : public testing::Test {
 protected:
  std::shared_ptr<Platform> platform_ = std::make_shared<HostPlatform>();
};

TEST_F(SegmentTest, TwoMappingsAreOneMemory) {
  Segment maker(platform_, kRing);
  Segment peer(platform_, Descriptor(dup(maker.descriptor())), kRing);
  maker.proxy_rings().rx.data[kRing - 1] = std::byte{42};
  maker.header().rx_committed.value = 7;
  peer.header().tx_consumed.value = 9;
  EXPECT_EQ(peer.proxy_rings().rx.data[kRing - 1], std::byte{42});
  EXPECT_EQ(peer.header().rx_committed.value, 7u);
  EXPECT_EQ(maker.header().tx_consumed.value, 9u);
}

TEST_F(SegmentTest, InDeviceMemoryTheProxyHasNoAddressThatAProcessorTakes) {
  Segment maker(platform_, kRing, RingPlacement::device);
  Segment peer(platform_, Descriptor(dup(maker.descriptor())), kRing, RingPlacement::device);
  maker.callers_rings().tx.data[kRing - 1] = std::byte{42};
  EXPECT_EQ(peer.callers_rings().tx.data[kRing - 1], std::byte{42});
  EXPECT_EQ(peer.proxy_rings().tx.data, hide(peer.callers_rings().tx.data));
  EXPECT_DEATH(*static_cast<volatile std::byte*>(peer.proxy_rings().tx.data), "");
}

TEST_F(SegmentTest, RefusesAFileThatCouldShrink) {
  EXPECT_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing), 0)), kRing), Error);
}

TEST_F(SegmentTest, RefusesAFileOfAnotherSize) {
  EXPECT_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing) - 1, F_SEAL_SHRINK)), kRing),
               Error);
  EXPECT_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing / 2), F_SEAL_SHRINK)), kRing),
               Error);
}

TEST_F(SegmentTest, IsOfThisUserAlone) {
  Segment segment(platform_, kRing);
  struct stat facts {};
  ASSERT_EQ(fstat(segment.descriptor(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(facts.st_uid, geteuid());
}

TEST_F(SegmentTest, RefusesAFileThatOthersMayOpen) {
  EXPECT_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK, 0604)), kRing),
               Error);
  EXPECT_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK, 0620)), kRing),
               Error);
  EXPECT_NO_THROW(Segment(platform_, Descriptor(memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK)), kRing));
}

TEST_F(SegmentTest, RefusesRingsThatNobodyMakes) {
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{4097}, std::uint64_t{2048}, ~std::uint64_t{0} / 2 + 1}) {
    EXPECT_THROW(Segment(platform_, Descriptor(memory_file(4096, F_SEAL_SHRINK)), bytes), Error) << bytes;
  }
}

TEST_F(SegmentTest, RefusesWhatIsNoMemoryFile) {
  EXPECT_THROW(Segment(platform_, Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC)), kRing), Error);
}

TEST(PinnedSegments, AreMadeAtOnceAndUsedAgainLikeNew) {
  const auto platform = std::make_shared<PinningPlatform>();
  {
    SegmentPool pool(platform, {kRing, kRing}, 2);
    EXPECT_EQ(platform->attached, 2);
    EXPECT_TRUE(pool.keeps_memory());
    auto first = pool.take(SegmentPool::Use::own, kRing / 2);
    const auto second = pool.take(SegmentPool::Use::shared, kRing);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    EXPECT_EQ(first->ring_bytes(), kRing / 2);
    EXPECT_GE(first->proxy_rings().tx.data, first->proxy_rings().rx.data + kRing / 2);
    EXPECT_EQ(pool.take(SegmentPool::Use::own, kRing), nullptr) << "all are in use";
    first->header().rx_committed.value = 7;
    pool.end_sharing(*first);
    EXPECT_GE(first->descriptor(), 0) << "it is to be offered again";
    first.reset();
    const auto again = pool.take(SegmentPool::Use::own, kRing);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->ring_bytes(), kRing);
    EXPECT_EQ(again->header().rx_committed.value, 0u);
    EXPECT_EQ(platform->attached, 2);
  }
  EXPECT_EQ(platform->attached, 0);
}

TEST(PinnedSegments, AreNoLargerThanWasSetUpAndNobodyElses) {
  const auto platform = std::make_shared<PinningPlatform>();
  SegmentPool pool(platform, {kRing, kRing}, 1);
  EXPECT_EQ(pool.take(SegmentPool::Use::own, 2 * kRing), nullptr);
  const int theirs = memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK);
  EXPECT_EQ(pool.map(theirs, kRing), nullptr);
  EXPECT_EQ(fcntl(theirs, F_GETFD), -1) << "the descriptor was taken over";
}

TEST(PinnedSegments, WhatCannotBePinnedIsNotKept) {
  const auto platform = std::make_shared<PinningPlatform>();
  platform->refuses = true;
  EXPECT_THROW(SegmentPool(platform, {kRing, kRing}, 1), Error);
}

class SegmentsOfAGpu : public testing::Test {
 protected:
  void SetUp() override { platform_->is_gpu = true; }
  SegmentPool pool(RingPlacement placement) { return SegmentPool(platform_, {kRing, kRing}, 2, placement); }

  std::shared_ptr<PinningPlatform> platform_ = std::make_shared<PinningPlatform>();
};

TEST_F(SegmentsOfAGpu, PlacementAutomaticIsDeviceMemoryForKernelsWithoutCopies) {
  SegmentPool segments = pool(RingPlacement::automatic);
  EXPECT_EQ(segments.placement_for(true), RingPlacement::host) << "links that would copy";
  EXPECT_EQ(segments.try_take_on_device(kRing, false), nullptr) << "host threads do not reach it";
  EXPECT_EQ(segments.try_take_on_device(2 * kRing, true), nullptr) << "too large";
  const auto first = segments.try_take_on_device(kRing, true), second = segments.try_take_on_device(kRing, true);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(first->placement(), RingPlacement::device);
  EXPECT_EQ(segments.try_take_on_device(kRing, true), nullptr) << "all are in use";
  EXPECT_EQ(segments.take_rings(kRing, true).callers->placement(), RingPlacement::host);
}

TEST_F(SegmentsOfAGpu, NamedPlacementsAreTakenByTheirLinks) {
  SegmentPool host = pool(RingPlacement::host), device = pool(RingPlacement::device);
  EXPECT_EQ(host.try_take_on_device(kRing, true), nullptr);
  EXPECT_EQ(device.try_take_on_device(kRing, true), nullptr);
  EXPECT_EQ(device.placement_for(true), RingPlacement::device);
}

TEST_F(SegmentsOfAGpu, TooLittleDeviceMemoryIsAnErrorOnlyWhereItWasAskedFor) {
  platform_->device_pieces_left = 1;
  EXPECT_THROW(pool(RingPlacement::device), Error);
  platform_->device_pieces_left = 1;
  SegmentPool segments = pool(RingPlacement::automatic);
  const auto only = segments.try_take_on_device(kRing, true);
  EXPECT_NE(only, nullptr) << "there was memory for one";
  EXPECT_EQ(segments.try_take_on_device(kRing, true), nullptr);
}

TEST_F(SegmentsOfAGpu, PlacementAutomaticLeavesMostOfTheMemoryToTheProgram) {
  constexpr std::uint64_t kLarge = SegmentPool::kAutomaticBytesMax / 2;
  SegmentPool segments(platform_, {kLarge, kLarge}, 2, RingPlacement::automatic);
  const auto first = segments.try_take_on_device(kRing, true);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(segments.try_take_on_device(kRing, true), nullptr) << "rings of one connection fill it";
}

/// The host cannot set words in device memory, so the next connection starts after what they may hold.
TEST_F(SegmentsOfAGpu, WordsOfTheNextConnectionStartAfterThoseOfTheLast) {
  SegmentPool segments(platform_, {kRing, kRing}, 1, RingPlacement::automatic);
  std::uint64_t last = 0;
  for (const std::uint64_t sent : {0ull, 5ull, 1ull << 40}) {
    const auto segment = segments.try_take_on_device(kRing, true);
    ASSERT_NE(segment, nullptr);
    ASSERT_NE(segment->device_words(), nullptr);
    segment->start_words();
    EXPECT_GT(segment->start(), last);
    EXPECT_EQ(segment->header().rx_consumed.value, segment->start());
    segment->header().tx_committed.value = last = segment->start() + sent;
  }
  const auto used_otherwise = segments.try_take_on_device(kRing, true);
  EXPECT_GT(used_otherwise->start(), last);
  EXPECT_EQ(used_otherwise->header().tx_consumed.value, 0u) << "a NIC counts from 0";
}

TEST_F(SegmentTest, OthersAreMappedOnceAndWhatCannotBeIsRefusedQuietly) {
  SegmentPool pool(platform_, {kRing, kRing}, 0);
  Segment maker(platform_, kRing);
  const auto mapped = pool.map(dup(maker.descriptor()), kRing);
  ASSERT_NE(mapped, nullptr);
  EXPECT_LT(mapped->descriptor(), 0) << "an open connection costs no descriptor";
  EXPECT_EQ(pool.map(memory_file(1, F_SEAL_SHRINK), kRing), nullptr);
}

}  // namespace
}  // namespace gpusock::proxy
