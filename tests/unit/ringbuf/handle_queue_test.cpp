// What the queue of handles promises.
#include "ringbuf/handle_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace gpusock::ringbuf {
namespace {

class HandleQueue : public testing::Test {
 protected:
  static constexpr std::uint64_t kCapacity = 8;
  std::array<std::uint64_t, kCapacity> entries_{};
  std::uint64_t published_ = 0;
  std::uint64_t taken_ = 0;
  HandleProducer<> producer_{entries_.data(), kCapacity, &published_};
  HandleConsumer<> consumer_{entries_.data(), kCapacity, &published_, &taken_};
};

TEST_F(HandleQueue, IsEmptyAtFirst) {
  EXPECT_TRUE(consumer_.empty());
  EXPECT_EQ(consumer_.try_take(), -1);
}

TEST_F(HandleQueue, GivesHandlesInOrderAcrossItsEnd) {
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < static_cast<int>(kCapacity); ++i) producer_.push(100 * round + i);
    EXPECT_FALSE(consumer_.empty());
    for (int i = 0; i < static_cast<int>(kCapacity); ++i) EXPECT_EQ(consumer_.try_take(), 100 * round + i);
    EXPECT_EQ(consumer_.try_take(), -1);
  }
}

TEST_F(HandleQueue, SkipsWhatWasPushedBeforeAPosition) {
  for (int i = 0; i < 3 * static_cast<int>(kCapacity); ++i) producer_.push(i);  // more than it holds: nobody wants them
  consumer_.skip_to(producer_.position());
  EXPECT_TRUE(consumer_.empty());
  EXPECT_EQ(consumer_.try_take(), -1);
  producer_.push(100);
  EXPECT_EQ(consumer_.try_take(), 100);
}

TEST_F(HandleQueue, EachHandleGoesToExactlyOneOfManyTakers) {
  constexpr int kHandles = 20'000, kTakers = 3;
  std::vector<std::atomic<int>> seen(kHandles);
  std::atomic<int> taken{0};
  const auto take = [&] {
    while (taken.load() < kHandles) {
      const std::int32_t handle = consumer_.try_take();
      if (handle < 0) {
        std::this_thread::yield();
        continue;
      }
      seen[handle].fetch_add(1);
      taken.fetch_add(1);
    }
  };
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i) takers.emplace_back(take);
  for (int i = 0; i < kHandles; ++i) {
    while (i - taken.load() >= static_cast<int>(kCapacity))
      std::this_thread::yield();  // as the proxy: never too many out
    producer_.push(i);
  }
  for (std::thread& taker : takers) taker.join();
  for (int i = 0; i < kHandles; ++i) ASSERT_EQ(seen[i].load(), 1) << "handle " << i;
}

}  // namespace
}  // namespace gpusock::ringbuf
