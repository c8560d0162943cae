// The kernel's halves of a NIC's queues against a model of the NIC: what is written arrives, room comes back, and
// nothing that the NIC writes is believed unseen.
#include "pair.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <thread>

namespace gpusock {
namespace {

using rdma::mlx5::SendQueue;
using test::Mlx5Nic;
using test::Mlx5Pair;

constexpr std::uint32_t kLengths[] = {0, 1, 3, 4, 5, 8, 12, 13, 16, 28, 29, 60, 92, 93, 156, 157, 219, 220};
// Where positions begin: 0, below the wrap of the NIC's index, and below that of 64 bits.
constexpr std::uint64_t kStarts[] = {0, 0xfffe, 0xff'fffd, std::numeric_limits<std::uint64_t>::max() - 2};

TEST(Mlx5Queues, NothingIsSeenBeforeTheDoorbell) {
  Mlx5Pair pair(8);
  ASSERT_EQ(pair.queue.append(pair.write(0, 100, false), true), 0);
  EXPECT_FALSE(pair.nic.step());
  EXPECT_EQ(pair.take_completions(), 0);
  pair.queue.ring();
  pair.nic.run();
  EXPECT_EQ(pair.nic.error(), nullptr);
  EXPECT_TRUE(pair.arrived(0, 100));
  EXPECT_EQ(pair.take_completions(), 1);
  EXPECT_EQ(pair.queue.room(), 8u);
}

/// What libmlx5 of rdma-core 44.0 writes for the same two requests of a queue pair with this number (golden_test.cpp
/// compares many more).
TEST(Mlx5Queues, TheBytesAreThoseOfRdmaCore) {
  constexpr std::uint64_t kGolden[] = {
      0x0000'0008'00be'ef03, 0x0000'0000'0000'0000, 0x0102'0304'0506'0708, 0x5566'7788'0000'0000,
      0x0000'1000'1122'3344, 0x7001'0203'0405'0607, 0x0000'0000'0000'0000, 0x0000'0000'0000'0000,
      0x0000'0108'00be'ef03, 0x0000'0008'0000'0000, 0x0102'0304'0506'1708, 0x5566'7788'0000'0000,
      0x8000'0008'706f'7369, 0x7469'6f6e'0000'0000, 0x0000'0000'0000'0000, 0x0000'0000'0000'0000,
  };
  std::array<std::uint64_t, 64> entries{};
  std::uint64_t record = 0, doorbell = 0;
  SendQueue queue({entries.data(), 8, &record, &doorbell, 0xbeef, 64});
  const auto address = reinterpret_cast<const void*>(0x7001'0203'0405'0607);
  ASSERT_EQ(queue.append({address, 4096, 0x11223344, 0x0102'0304'0506'0708, 0x55667788, false}, false), 0);
  queue.ring();
  ASSERT_EQ(queue.append({"position and more", 8, 0, 0x0102'0304'0506'1708, 0x55667788, true}, true), 0);
  queue.ring();
  for (std::size_t i = 0; i < std::size(kGolden); ++i) EXPECT_EQ(entries[i], __builtin_bswap64(kGolden[i])) << i;
  EXPECT_EQ(record, __builtin_bswap64(2));
  EXPECT_EQ(doorbell, __builtin_bswap64(kGolden[8]));
}

TEST(Mlx5Queues, AnEmptyRingWritesNothing) {
  Mlx5Pair pair(8);
  pair.queue.ring();
  EXPECT_EQ(pair.doorbell, 0u);
  EXPECT_EQ(pair.record, 0u);
}

TEST(Mlx5Queues, AllLengthsWrapAroundTheQueuesEnd) {
  for (const std::uint64_t start : kStarts) {
    Mlx5Pair pair(8, start);
    std::uint64_t blocks = 0;
    for (int round = 0; round < 12; ++round) {
      for (const std::uint32_t bytes : kLengths) {
        for (const bool copied : {false, true}) {
          SCOPED_TRACE(std::to_string(start) + ", " + std::to_string(bytes) + (copied ? " copied" : ""));
          pair.remote.fill(std::byte{0});
          const rdma::mlx5::Write write = pair.write(round * 3, bytes, copied);
          ASSERT_EQ(pair.queue.append(write, true), 0);
          blocks += SendQueue::blocks_of(write);
          pair.queue.ring();
          pair.nic.run();
          ASSERT_EQ(pair.nic.error(), nullptr);
          ASSERT_TRUE(pair.arrived(round * 3, bytes));
          ASSERT_EQ(std::to_integer<int>(pair.remote[round * 3 + bytes]), 0) << "not one byte more";
          ASSERT_EQ(pair.take_completions(), 1);
          ASSERT_EQ(pair.queue.completed(), start + blocks);
        }
      }
    }
    EXPECT_EQ(pair.queue.room(), 8u);
  }
}

TEST(Mlx5Queues, BytesAreFollowedByTheirPositionUnderOneDoorbell) {
  Mlx5Pair pair(8);
  ASSERT_EQ(pair.queue.append(pair.write(64, 1000, false), false), 0);
  ASSERT_EQ(pair.queue.append(pair.write(0, 8, true), true), 0);
  pair.queue.ring();
  ASSERT_TRUE(pair.nic.step());
  EXPECT_TRUE(pair.arrived(64, 1000));
  EXPECT_FALSE(pair.arrived(0, 8));
  EXPECT_EQ(pair.take_completions(), 0) << "the first asked for none";
  ASSERT_TRUE(pair.nic.step());
  EXPECT_TRUE(pair.arrived(0, 8));
  EXPECT_EQ(pair.take_completions(), 1) << "one for both";
  EXPECT_EQ(pair.queue.completed(), 2u);
}

TEST(Mlx5Queues, AFullQueueTakesNoMore) {
  Mlx5Pair pair(8);
  for (int i = 0; i < 7; ++i) ASSERT_EQ(pair.queue.append(pair.write(0, 16, false), false), 0);
  EXPECT_EQ(pair.queue.room(), 1u);
  EXPECT_EQ(pair.queue.append(pair.write(0, 60, true), false), -EAGAIN) << "two blocks";
  ASSERT_EQ(pair.queue.append(pair.write(0, 16, false), false), 0);
  EXPECT_EQ(pair.queue.append(pair.write(0, 0, false), false), -EAGAIN);
  EXPECT_EQ(pair.queue.appended(), 8u);
  pair.queue.ring();
  pair.nic.run();
  EXPECT_EQ(pair.nic.error(), nullptr);
  EXPECT_EQ(pair.take_completions(), 4) << "one in each quarter of the queue";
  EXPECT_EQ(pair.queue.room(), 8u);
}

TEST(Mlx5Queues, RoomComesBackWithoutAnyNotification) {
  Mlx5Pair pair(16);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t bytes = kLengths[i % std::size(kLengths)];
    int error = 0;
    while ((error = pair.queue.append(pair.write(0, bytes, i % 3 != 0), false)) == -EAGAIN) {
      pair.queue.ring();
      pair.nic.run();
      ASSERT_GT(pair.take_completions(), 0) << "a full queue has a completion to come";
    }
    ASSERT_EQ(error, 0);
  }
  EXPECT_EQ(pair.nic.error(), nullptr);
}

TEST(Mlx5Queues, WhatDoesNotFitAnEntryIsRefused) {
  Mlx5Pair pair(4);
  EXPECT_EQ(pair.queue.append(pair.write(0, Mlx5Pair::kInlineBytes + 1, true), true), -EINVAL);
  EXPECT_EQ(pair.queue.append(pair.write(0, 93, true), true), -EINVAL) << "three blocks of four";
  EXPECT_EQ(pair.queue.append(pair.write(0, 92, true), true), 0);
  EXPECT_EQ(pair.queue.append(pair.write(0, 0x8000'0000, false), true), -EINVAL);
  EXPECT_EQ(pair.queue.append(pair.write(0, 0x7fff'ffff, false), true), 0);
}

TEST(Mlx5Queues, ABrokenQueuePairIsNotUsedAgain) {
  Mlx5Pair pair(8);
  rdma::mlx5::Write wrong = pair.write(0, 16, false);
  wrong.remote_key ^= 1;
  ASSERT_EQ(pair.queue.append(wrong, false), 0);
  ASSERT_EQ(pair.queue.append(pair.write(0, 16, false), false), 0);
  pair.queue.ring();
  pair.nic.run();
  rdma::mlx5::Completion completion;
  ASSERT_EQ(pair.done.poll(completion), 1);
  EXPECT_TRUE(completion.failed);
  EXPECT_EQ(completion.block, 0);
  EXPECT_EQ(completion.syndrome, Mlx5Nic::kRemoteAccessError);
  EXPECT_EQ(completion.vendor_syndrome, 0x77);
  EXPECT_EQ(pair.queue.take(completion), -EIO);
  ASSERT_EQ(pair.done.poll(completion), 1);
  EXPECT_EQ(completion.syndrome, Mlx5Nic::kFlushed) << "though it asked for no completion";
  EXPECT_EQ(pair.done.poll(completion), 0);
  EXPECT_FALSE(pair.arrived(0, 16));
  EXPECT_TRUE(pair.queue.failed());
  EXPECT_EQ(pair.queue.completed(), 0u) << "nothing that failed is reported as complete";
  EXPECT_EQ(pair.queue.append(pair.write(0, 16, false), true), -ECONNRESET);
}

TEST(Mlx5Queues, ACompletionOfNoRequestIsAnError) {
  Mlx5Pair pair(8);
  ASSERT_EQ(pair.queue.append(pair.write(0, 100, true), true), 0);
  ASSERT_EQ(pair.queue.append(pair.write(0, 100, true), true), 0);
  EXPECT_EQ(pair.queue.take({.number = Mlx5Pair::kNumber, .block = 0}), -EPROTO) << "not handed to the NIC";
  pair.queue.ring();
  pair.entries[6 * 8] = 0;
  EXPECT_EQ(pair.queue.take({.number = Mlx5Pair::kNumber, .block = 6}), -EPROTO);
  EXPECT_EQ(pair.queue.take({.number = Mlx5Pair::kNumber, .block = 0xffff}), -EPROTO);
  EXPECT_EQ(pair.queue.take({.number = 1, .block = 0}), -EPROTO) << "another queue pair's";
  pair.entries[3 * 8] = ~std::uint64_t{0};  // of the second entry, which then has 16 blocks
  EXPECT_EQ(pair.queue.take({.number = Mlx5Pair::kNumber, .block = 3}), -EPROTO);
  EXPECT_EQ(pair.queue.completed(), 0u);
  EXPECT_EQ(pair.queue.take({.number = Mlx5Pair::kNumber, .block = 0}), 0);
  EXPECT_EQ(pair.queue.completed(), 3u);
}

TEST(Mlx5Queues, ACompletionOfTheLastLapIsNone) {
  Mlx5Pair pair(4);
  rdma::mlx5::Completion completion;
  EXPECT_EQ(pair.done.poll(completion), 0) << "a new queue";
  for (std::uint16_t i = 0; i < 11; ++i) {
    pair.nic.complete(Mlx5Nic::kDone, i, 0, 7);
    ASSERT_EQ(pair.done.poll(completion), 1) << i;
    EXPECT_EQ(completion.block, i);
    EXPECT_EQ(completion.number, 7u);
    ASSERT_EQ(pair.done.poll(completion), 0) << i;
  }
  pair.nic.complete(Mlx5Nic::kInvalid, 11, 0, 7);
  EXPECT_EQ(pair.done.poll(completion), 0) << "the right owner, but not written";
  EXPECT_EQ(pair.nic.error(), nullptr);
}

TEST(Mlx5Queues, AKindThatSendQueuesDoNotGetIsAnError) {
  Mlx5Pair pair(4);
  rdma::mlx5::Completion completion;
  pair.nic.complete(2, 0, 0, Mlx5Pair::kNumber);  // MLX5_CQE_RESP_SEND
  EXPECT_EQ(pair.done.poll(completion), -EPROTO);
  EXPECT_EQ(pair.done.poll(completion), -EPROTO) << "and stays one";
}

TEST(Mlx5Queues, WhatIsNotPolledIsNotOverwritten) {
  Mlx5Pair pair(4);
  for (std::uint16_t i = 0; i < 4; ++i) pair.nic.complete(Mlx5Nic::kDone, i, 0, 7);
  EXPECT_EQ(pair.nic.error(), nullptr);
  rdma::mlx5::Completion completion;
  ASSERT_EQ(pair.done.poll(completion), 1);
  pair.nic.complete(Mlx5Nic::kDone, 4, 0, 7);
  EXPECT_EQ(pair.nic.error(), nullptr) << "the record says that one is free";
  pair.nic.complete(Mlx5Nic::kDone, 5, 0, 7);
  EXPECT_STREQ(pair.nic.error(), "the completion queue is full");
}

/// A kernel that sends messages, each followed by its number, against a NIC on another thread.
void exchange(bool eager, std::uint64_t start) {
  Mlx5Pair pair(16, start);
  pair.nic.set_eager(eager);
  constexpr std::uint64_t kMessages = 60;
  std::atomic<bool> over = false;
  std::thread nic([&] {
    std::uint64_t seen = 0;
    const auto one_more = [&] {
      std::uint64_t number = 0;
      std::memcpy(&number, pair.remote.data(), sizeof number);
      if (number == seen) return;
      ASSERT_EQ(number, seen + 1) << "each is executed once, and in order";
      seen = number;
      const std::size_t at = 8 + number % 8 * 256;
      for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(pair.remote[at + i], static_cast<std::byte>(number + i));
    };
    while (seen < kMessages && pair.nic.error() == nullptr && !testing::Test::HasFatalFailure()) {
      if (pair.nic.step()) {
        one_more();
      } else {
        std::this_thread::yield();
      }
    }
    over = true;
  });
  std::uint64_t reused[8] = {};  // of each offset, the position from which on it may be overwritten
  const auto wait_while = [&](auto condition) {
    while (condition() && !over) {
      ASSERT_GE(pair.take_completions(), 0);
      std::this_thread::yield();
    }
  };
  for (std::uint64_t number = 1; number <= kMessages && !over; ++number) {
    const auto at = static_cast<std::uint32_t>(8 + number % 8 * 256);
    wait_while(
        [&] { return number > 8 && static_cast<std::int64_t>(pair.queue.completed() - reused[number % 8]) < 0; });
    for (std::size_t i = 0; i < 100; ++i) pair.local[at + i] = static_cast<std::byte>(number + i);
    wait_while([&] { return pair.queue.append(pair.write(at, 100, number % 3 == 0), false) == -EAGAIN; });
    std::memcpy(pair.local.data(), &number, sizeof number);
    wait_while([&] { return pair.queue.append(pair.write(0, 8, true), true) == -EAGAIN; });
    reused[number % 8] = pair.queue.appended();
    pair.queue.ring();
  }
  nic.join();
  EXPECT_STREQ(pair.nic.error(), nullptr);
}

TEST(Mlx5Queues, ANicOnAnotherThread) { exchange(false, 0); }
TEST(Mlx5Queues, ANicThatLooksAtTheRecordAtAnyTime) { exchange(true, 0xfff0); }

}  // namespace
}  // namespace gpusock
