#include "ringbuf/store_choice.hpp"

#include <gtest/gtest.h>

namespace gpusock::ringbuf {
namespace {

/// A sender on a machine whose speeds with both kinds of stores are given, in bytes per microsecond.
struct Sender {
  std::uint64_t ordinary, streaming;
  StoreChoice stores = {};
  std::uint64_t now_ns = 1'000'000;
  std::uint64_t streamed_bytes = 0;

  void send(std::uint64_t total) {
    constexpr std::uint64_t kPart = 64 << 10;
    for (std::uint64_t sent = 0; sent < total; sent += kPart) {
      const bool streams = stores.streaming();
      streamed_bytes += streams ? kPart : 0;
      now_ns += kPart * 1000 / (streams ? streaming : ordinary);
      if (stores.window_is_full(kPart)) stores.end_window(now_ns);
    }
  }
};

constexpr std::uint64_t kGiB = 1 << 30;

TEST(StoreChoice, StartsWithOrdinaryStores) { EXPECT_FALSE(StoreChoice().streaming()); }

TEST(StoreChoice, GoesOverToStreamingStoresWhereTheyMoveMore) {
  Sender sender{.ordinary = 2'000, .streaming = 16'000};
  sender.send(kGiB);
  EXPECT_TRUE(sender.stores.streaming());
  EXPECT_GT(sender.streamed_bytes, kGiB * 8 / 10);
}

TEST(StoreChoice, KeepsOrdinaryStoresWhereTheyMoveMoreAndTriesTheOthersEverMoreSeldom) {
  Sender sender{.ordinary = 32'000, .streaming = 16'000};
  sender.send(8 * kGiB);
  EXPECT_FALSE(sender.stores.streaming());
  EXPECT_LT(sender.streamed_bytes, 8 * kGiB / 30);
}

TEST(StoreChoice, StaysWhereTheDifferenceIsSmall) {
  Sender sender{.ordinary = 10'000, .streaming = 12'000};
  sender.send(kGiB);
  EXPECT_FALSE(sender.stores.streaming());
}

TEST(StoreChoice, FollowsAThreadThatMovesToAnotherProcessor) {
  Sender sender{.ordinary = 2'000, .streaming = 16'000};
  sender.send(kGiB);
  sender.ordinary = 32'000;  // now beside the receiver
  sender.send(8 * kGiB);
  EXPECT_FALSE(sender.stores.streaming());
  sender.ordinary = 2'000;
  sender.send(8 * kGiB);
  EXPECT_TRUE(sender.stores.streaming());
}

TEST(StoreChoice, TakesNothingFromASenderThatHasLittleToSend) {
  Sender sender{.ordinary = 100, .streaming = 1'000};  // 100 MB/s: no store is that slow
  sender.send(kGiB);
  EXPECT_FALSE(sender.stores.streaming());
}

}  // namespace
}  // namespace gpusock::ringbuf
