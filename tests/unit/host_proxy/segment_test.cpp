// Ring memory from another process is taken only if it is what was agreed, and cannot shrink under the mapping.
#include "host_proxy/error.hpp"
#include "host_proxy/memory_copier.hpp"
#include "host_proxy/segment.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  Segment peer(platform_, dup(maker.descriptor()), kRing);
  maker.ring(0).data[kRing - 1] = std::byte{42};
  *maker.committed(0) = 7;
  *peer.consumed(1) = 9;
  EXPECT_EQ(peer.ring(0).data[kRing - 1], std::byte{42});
  EXPECT_EQ(*peer.committed(0), 7u);
  EXPECT_EQ(*maker.consumed(1), 9u);
}

TEST_F(SegmentTest, InDeviceMemoryTheProxyHasNoAddressThatAProcessorTakes) {
  Segment maker(platform_, kRing, RingPlacement::device);
  Segment peer(platform_, dup(maker.descriptor()), kRing, RingPlacement::device);
  maker.callers_ring(1).data[kRing - 1] = std::byte{42};
  EXPECT_EQ(peer.callers_ring(1).data[kRing - 1], std::byte{42});
  EXPECT_EQ(peer.ring(1).data, hide(peer.callers_ring(1).data));
  EXPECT_DEATH(*static_cast<volatile std::byte*>(peer.ring(1).data), "");
}

TEST_F(SegmentTest, RefusesAFileThatCouldShrink) {
  EXPECT_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing), 0), kRing), Error);
}

TEST_F(SegmentTest, RefusesAFileOfAnotherSize) {
  EXPECT_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing) - 1, F_SEAL_SHRINK), kRing), Error);
  EXPECT_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing / 2), F_SEAL_SHRINK), kRing), Error);
}

TEST_F(SegmentTest, IsOfThisUserAlone) {
  Segment segment(platform_, kRing);
  struct stat facts {};
  ASSERT_EQ(fstat(segment.descriptor(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(facts.st_uid, geteuid());
}

TEST_F(SegmentTest, RefusesAFileThatOthersMayOpen) {
  EXPECT_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK, 0604), kRing), Error);
  EXPECT_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK, 0620), kRing), Error);
  EXPECT_NO_THROW(Segment(platform_, memory_file(Segment::total_bytes(kRing), F_SEAL_SHRINK), kRing));
}

TEST_F(SegmentTest, RefusesRingsThatNobodyMakes) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4097}, std::uint64_t{2048}, ~std::uint64_t{0} / 2 + 1}) {
    EXPECT_THROW(Segment(platform_, memory_file(4096, F_SEAL_SHRINK), bytes), Error) << bytes;
  }
}

TEST_F(SegmentTest, RefusesWhatIsNoMemoryFile) {
  EXPECT_THROW(Segment(platform_, open("/dev/null", O_RDWR | O_CLOEXEC), kRing), Error);
}

}  // namespace
}  // namespace gpusock::proxy
