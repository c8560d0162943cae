// Copies by words, as kernels on a GPU make them: every alignment of the two memories, by groups of any size.
#include "gpusock/detail/copy_words.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace gpusock::detail {
namespace {

constexpr std::size_t kWord = sizeof(CopyWord);

/// Memory that begins `skew` bytes after an address that 16 divides, and ends with its last byte: AddressSanitizer sees
/// whoever reads or writes past it.
class Skewed {
 public:
  Skewed(std::size_t skew, std::size_t bytes) : memory_(new unsigned char[skew + bytes]), skew_(skew), bytes_(bytes) {}
  unsigned char* data() { return memory_.get() + skew_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<unsigned char[]> memory_;  // NOLINT(modernize-avoid-c-arrays): of exactly this size
  std::size_t skew_, bytes_;
};

TEST(CopyWords, EveryAlignmentAndLengthArrivesIntactAndTouchesNothingElse) {
  for (std::size_t to_skew = 0; to_skew < kWord; ++to_skew) {
    for (std::size_t from_skew = 0; from_skew < kWord; ++from_skew) {
      for (const std::size_t bytes : {0, 1, 15, 17, 31, 48, 51, 64, 100, 257}) {
        for (const std::uint64_t threads : {1, 3, 32}) {
          constexpr std::size_t kMargin = 32;
          Skewed to(to_skew, bytes + 2 * kMargin), from(from_skew, bytes);
          std::memset(to.data(), 0xee, to.bytes());
          for (std::size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<unsigned char>(i * 7 + 1);
          for (std::uint64_t rank = 0; rank < threads; ++rank)
            copy_by_words(rank, threads, to.data() + kMargin, from.data(), bytes);
          ASSERT_EQ(std::memcmp(to.data() + kMargin, from.data(), bytes), 0)
              << bytes << " bytes from " << from_skew << " to " << to_skew << " by " << threads;
          for (std::size_t i = 0; i < kMargin; ++i) {
            ASSERT_EQ(to.data()[i], 0xee);
            ASSERT_EQ(to.data()[kMargin + bytes + i], 0xee);
          }
        }
      }
    }
  }
}

TEST(CopyWords, ReadsNothingButItsBytes) {
  for (std::uintptr_t to = 0; to < kWord; ++to) {
    for (std::uintptr_t from = 64; from < 64 + kWord; ++from) {
      for (std::uint64_t bytes = 0; bytes < 200; ++bytes) {
        const CopyPlan plan = plan_copy(to, from, bytes);
        ASSERT_LE(plan.head + plan.words * kWord, bytes);
        if (plan.words == 0) continue;
        ASSERT_EQ((to + plan.head) % kWord, 0u);
        ASSERT_GE(plan.head, plan.skew) << "the first word's parts begin before the source";
        const std::uint64_t after = plan.skew == 0 ? 0 : 4 - plan.skew;
        ASSERT_LE(plan.head + plan.words * kWord + after, bytes) << "the last word's parts end after the source";
      }
    }
  }
}

TEST(CopyWords, MostOfALongCopyIsMadeOfWordsWhateverTheAlignments) {
  for (std::uintptr_t to = 0; to < kWord; ++to) {
    for (std::uintptr_t from = 0; from < kWord; ++from) {
      EXPECT_GE(plan_copy(to, from, 4096).words, 4096 / kWord - 3);
    }
  }
}

}  // namespace
}  // namespace gpusock::detail
