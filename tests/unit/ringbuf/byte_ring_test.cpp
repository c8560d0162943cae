// What a byte ring promises at its boundaries. Positions start at 0, just below 2^32 and just below 2^64.
#include "ringbuf/byte_ring.hpp"
#include "tests/support/ring_storage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace gpusock::ringbuf {
namespace {

constexpr std::uint64_t kCapacity = 64;

class ByteRing : public testing::TestWithParam<std::uint64_t> {
 protected:
  /// Writes `bytes` bytes counting up from next_in_.
  void put(std::uint64_t bytes) {
    ASSERT_GE(producer_.writable(bytes), bytes);
    const RingSpans to = producer_.spans(bytes);
    ASSERT_EQ(to.first.bytes + to.second.bytes, bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) at(to, i) = static_cast<std::byte>(next_in_++);
    producer_.commit(bytes);
  }

  /// Reads `bytes` bytes and checks that they go on from next_out_.
  void get(std::uint64_t bytes) {
    ASSERT_GE(consumer_.readable(bytes), bytes);
    const RingSpans from = consumer_.spans(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i)
      ASSERT_EQ(at(from, i), static_cast<std::byte>(next_out_++)) << "byte " << i;
    consumer_.release(bytes);
  }

  static std::byte& at(const RingSpans& spans, std::uint64_t i) {
    return i < spans.first.bytes ? spans.first.data[i] : spans.second.data[i - spans.first.bytes];
  }

  RingStorage storage_{kCapacity, GetParam()};
  ByteProducer<> producer_ = storage_.producer();
  ByteConsumer<> consumer_ = storage_.consumer();
  std::uint8_t next_in_ = 0;
  std::uint8_t next_out_ = 0;
};

TEST_P(ByteRing, IsEmptyAtFirst) {
  EXPECT_EQ(producer_.writable(), kCapacity);
  EXPECT_EQ(consumer_.readable(), 0u);
}

TEST_P(ByteRing, CommittingNothingChangesNothing) {
  put(0);
  EXPECT_EQ(consumer_.readable(), 0u);
  EXPECT_EQ(producer_.writable(), kCapacity);
}

TEST_P(ByteRing, HoldsExactlyItsCapacity) {
  put(kCapacity);
  EXPECT_EQ(producer_.writable(), 0u);
  EXPECT_EQ(consumer_.readable(), kCapacity);
  get(kCapacity);
  EXPECT_EQ(producer_.writable(), kCapacity);
  EXPECT_EQ(consumer_.readable(), 0u);
}

TEST_P(ByteRing, FullByOneByte) {
  put(kCapacity - 1);
  EXPECT_EQ(producer_.writable(), 1u);
  put(1);
  EXPECT_EQ(producer_.writable(), 0u);
  get(1);
  EXPECT_EQ(producer_.writable(), 1u);
}

TEST_P(ByteRing, ARangeThatPassesTheEndIsTwoSpans) {
  const std::uint64_t index = producer_.position() % kCapacity;
  const std::uint64_t to_end = kCapacity - index;
  put(to_end - (to_end > 1 ? 1 : 0));
  get(to_end - (to_end > 1 ? 1 : 0));
  const RingSpans spans = producer_.spans(8);
  EXPECT_EQ(spans.first.bytes + spans.second.bytes, 8u);
  put(8);
  get(8);
}

TEST_P(ByteRing, EverySizeAtEveryOffsetArrivesIntact) {
  for (std::uint64_t bytes = 0; bytes <= kCapacity; ++bytes) {
    for (std::uint64_t offset = 0; offset < kCapacity; ++offset) {
      put(bytes);
      get(bytes);
      put(1);
      get(1);
    }
  }
}

TEST_P(ByteRing, PositionsPassTheWrapOfTheirCounter) {
  for (int i = 0; i < 40; ++i) {
    put(kCapacity - 3);
    get(5);
    put(3);
    get(kCapacity - 5);
  }
  EXPECT_EQ(producer_.position(), GetParam() + 40 * kCapacity);  // modulo 2^64
  EXPECT_EQ(consumer_.position(), producer_.position());
}

TEST_P(ByteRing, AskingForLittleDoesNotReadTheOtherSidesWord) {
  put(10);
  get(10);
  // 54 bytes are known to be free; the consumer's word would say 64.
  EXPECT_EQ(producer_.writable(54), 54u);
  EXPECT_EQ(producer_.writable(55), kCapacity);
}

TEST_P(ByteRing, AnImpossibleConsumedPositionIsReportedAndNotUsed) {
  put(8);
  *storage_.consumed() = GetParam() + 9;  // more than was ever committed
  EXPECT_EQ(producer_.writable(), kRingCorrupt);
  *storage_.consumed() = GetParam() - kCapacity;  // less than what is known to be consumed
  EXPECT_EQ(producer_.writable(), kRingCorrupt);
  EXPECT_EQ(producer_.writable(kCapacity - 7), kRingCorrupt);  // nor is it remembered, however little is asked for
  *storage_.consumed() = GetParam() + 8;
  EXPECT_EQ(producer_.writable(), kCapacity);
}

TEST_P(ByteRing, AnImpossibleCommittedPositionIsReportedAndNotUsed) {
  *storage_.committed() = GetParam() + kCapacity + 1;
  EXPECT_EQ(consumer_.readable(), kRingCorrupt);
  *storage_.committed() = GetParam() - 1;
  EXPECT_EQ(consumer_.readable(), kRingCorrupt);
  EXPECT_EQ(consumer_.readable(1), kRingCorrupt);  // nor is it remembered, however little is asked for
  *storage_.committed() = GetParam() + 1;
  EXPECT_EQ(consumer_.readable(), 1u);
}

std::string name_of_start(const testing::TestParamInfo<std::uint64_t>& info) {
  return info.index == 0   ? "From0"
         : info.index == 1 ? "FromBelow2to32"
         : info.index == 2 ? "FromBelow2to64"
                           : "FromOdd";
}

INSTANTIATE_TEST_SUITE_P(Starts, ByteRing,
                         testing::Values(0, (std::uint64_t{1} << 32) - 100, ~std::uint64_t{0} - 100, 12345677),
                         name_of_start);

TEST(RingStorageTest, RefusesACapacityThatIsNoPowerOfTwo) {
  EXPECT_THROW(RingStorage(100), std::invalid_argument);
  EXPECT_THROW(RingStorage(0), std::invalid_argument);
}

TEST(RingStorageTest, HalvesArePlainDataThatMayLieInSharedMemory) {
  EXPECT_TRUE(std::is_trivially_copyable_v<ByteProducer<>>);
  EXPECT_TRUE(std::is_trivially_copyable_v<ByteConsumer<>>);
}

/// Words in a device's memory hold what an earlier connection left there, until a half stores its own.
TEST_P(ByteRing, KeptWordsMeanNothingBeforeTheyAreStored) {
  std::byte bytes[kCapacity] = {};
  const std::uint64_t origin = GetParam();
  for (const std::uint64_t before : {std::uint64_t{1}, kCapacity, kCapacity + 1, std::uint64_t{1} << 40}) {
    std::uint64_t committed = origin - before, consumed = origin - before - 1, copies[2] = {};
    const RingMemory memory{bytes, kCapacity, origin, true};
    ByteProducer<> producer(memory, &committed, &consumed, origin, {&copies[0]});
    ByteConsumer<> consumer(memory, &committed, &consumed, origin, {&copies[1]});
    EXPECT_EQ(consumer.readable(), 0u);
    EXPECT_EQ(consumer.readable_at_a_glance(), 0u);
    EXPECT_EQ(consumer.load_committed(), origin);
    producer.commit(kCapacity);
    EXPECT_EQ(copies[0], origin + kCapacity) << "the host's copy";
    EXPECT_EQ(producer.writable(), 0u);
    EXPECT_EQ(producer.writable_at_a_glance(), 0u);
    EXPECT_TRUE(producer.note_consumed(producer.load_consumed()));
    EXPECT_EQ(consumer.readable(), kCapacity);
    consumer.release(3);
    EXPECT_EQ(copies[1], origin + 3);
    EXPECT_EQ(producer.writable(), 3u);
    committed = origin + 2 * kCapacity + 4;
    EXPECT_EQ(consumer.readable(), kRingCorrupt) << "after the first position a word means what it says";
  }
}

}  // namespace
}  // namespace gpusock::ringbuf
