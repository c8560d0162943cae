// Which headers of a record there can be: all others come from a peer that lies.
#include "ringbuf/record.hpp"

#include <gtest/gtest.h>

namespace gpusock::ringbuf {
namespace {

constexpr std::uint32_t kFiller = RecordHeader::kFiller;

TEST(Record, SpansAreWholeWordsWithTheHeader) {
  EXPECT_EQ(record_span(1), 16u);
  EXPECT_EQ(record_span(8), 16u);
  EXPECT_EQ(record_span(9), 24u);
}

TEST(Record, TheLongestFitsWithAFillerOfItsOwnSizeBeforeIt) {
  for (std::uint64_t capacity = 4096; capacity <= 64 << 20; capacity *= 2) {
    EXPECT_LE(2 * record_span(record_bytes_max(capacity)), capacity);
    EXPECT_GT(2 * record_span(record_bytes_max(capacity) + 1), capacity);
  }
}

TEST(Record, AHeaderIsOneWord) {
  const RecordHeader header{0x89abcdef, 0x01234568};
  EXPECT_EQ(header.pack(), 0x0123456889abcdefu);
  EXPECT_EQ(RecordHeader::unpack(header.pack()).bytes, header.bytes);
  EXPECT_EQ(RecordHeader::unpack(header.pack()).span, header.span);
}

TEST(Record, OnlyWhatASenderWritesFits) {
  EXPECT_TRUE((RecordHeader{1, 16}.fits(16)));
  EXPECT_TRUE((RecordHeader{8, 16}.fits(4096)));
  EXPECT_TRUE((RecordHeader{1, 64}.fits(64))) << "of a reservation, a part was committed";
  EXPECT_TRUE((RecordHeader{kFiller, 8}.fits(8)));
  EXPECT_FALSE((RecordHeader{0, 8}.fits(8))) << "an empty record";
  EXPECT_FALSE((RecordHeader{9, 16}.fits(4096))) << "more than its span";
  EXPECT_FALSE((RecordHeader{1, 16}.fits(8))) << "past the ring's end";
  EXPECT_FALSE((RecordHeader{1, 12}.fits(4096))) << "not whole words";
  EXPECT_FALSE((RecordHeader{1, 0}.fits(4096)));
  EXPECT_FALSE((RecordHeader{kFiller, 0}.fits(4096)));
  EXPECT_FALSE((RecordHeader{0xfffffffe, 0xfffffff8}.fits(64 << 20)));
}

}  // namespace
}  // namespace gpusock::ringbuf
