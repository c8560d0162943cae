// Promises of the rate's measuring side: as many messages are on their way as it is told, all of them come back, and a
// sample is the time of one message from its send to its return.
#include "microbench/rate.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <limits>
#include <vector>

namespace bench {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kWords = 8;

/// A wire (wire.cuh) whose other side sends back what it gets, in the same order.
class EchoInTurn {
 public:
  std::int64_t send(const gpusock::ThisThread&, const std::uint64_t* data, std::uint64_t bytes) {
    if (sent == breaks_after) return -EPIPE;
    on_their_way_.emplace_back(data, data + words_of(bytes));
    ++sent;
    most = std::max(most, on_their_way_.size());
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t receive(const gpusock::ThisThread&, std::uint64_t* data, std::uint64_t bytes) {
    std::copy(on_their_way_.front().begin(), on_their_way_.front().end(), data);
    if (sent - on_their_way_.size() == spoils) data[kWords - 1] ^= 1;
    on_their_way_.pop_front();
    return static_cast<std::int64_t>(bytes);
  }
  std::size_t left() const { return on_their_way_.size(); }

  std::uint64_t sent = 0, breaks_after = kNoLimit;
  std::uint64_t spoils = kNoLimit;  ///< the number of a message whose last word comes back wrong
  std::size_t most = 0;             ///< messages that were on their way at a time

 private:
  std::deque<std::vector<std::uint64_t>> on_their_way_;
};

/// A measurement on one socket.
struct Measured {
  Account account;
  std::vector<std::uint64_t> samples_ns;
};

Measured measure_rate(EchoInTurn& wire, std::uint64_t window, std::uint64_t warmup, std::uint64_t messages,
                      std::uint64_t duration_ns = kNoLimit) {
  Job job;
  job.question = Question::rate;
  job.bytes = 8 * kWords;
  job.window = window;
  job.warmup = warmup;
  job.warmup_ns = kNoLimit;
  job.messages_max = job.samples_max = messages;
  job.duration_ns = duration_ns;
  std::vector<std::uint64_t> out(kWords), in(kWords);
  Measured measured{{}, std::vector<std::uint64_t>(messages)};
  keep_busy(gpusock::this_thread(), wire, job, {out.data(), in.data(), measured.samples_ns.data(), &measured.account});
  return measured;
}

TEST(Window, AsManyMessagesAreOnTheirWayAsItSays) {
  for (const std::uint64_t window : {1u, 2u, 7u}) {
    EchoInTurn wire;
    EXPECT_EQ(measure_rate(wire, window, 9, 20).account.messages, 20u);
    EXPECT_EQ(wire.most, window);
    EXPECT_EQ(wire.sent, 9u + 20u);
    EXPECT_EQ(wire.left(), 0u);
  }
}

TEST(Window, MayBeLargerThanTheMessages) {
  EchoInTurn wire;
  EXPECT_EQ(measure_rate(wire, 100, 1, 3).account.messages, 3u);
  EXPECT_EQ(wire.most, 3u);
  EXPECT_EQ(wire.left(), 0u);
}

TEST(Window, WhatIsOnItsWayAtTheEndComesBackAndCounts) {
  EchoInTurn wire;
  const Measured measured = measure_rate(wire, 5, 0, 1000, 0);  // the time is over at once
  EXPECT_EQ(measured.account.messages, 5u);
  EXPECT_EQ(wire.left(), 0u);
}

TEST(Window, SamplesAreTimesOfMessagesWithinTheWhole) {
  EchoInTurn wire;
  const Measured measured = measure_rate(wire, 3, 2, 50);
  EXPECT_EQ(measured.account.wrong_words, 0u);
  for (const std::uint64_t sample_ns : measured.samples_ns) EXPECT_LE(sample_ns, measured.account.elapsed_ns);
}

TEST(Window, WrongWordsAreFoundInTheWarmUpAndInTimedMessages) {
  for (const std::uint64_t spoilt : {0u, 3u, 4u, 12u}) {
    EchoInTurn wire;
    wire.spoils = spoilt;
    EXPECT_EQ(measure_rate(wire, 2, 4, 20).account.wrong_words, 1u) << spoilt;
  }
}

TEST(Window, AFailureEndsIt) {
  for (const std::uint64_t sends : {0u, 3u, 6u}) {
    EchoInTurn wire;
    wire.breaks_after = sends;
    const Account account = measure_rate(wire, 2, 4, 20).account;
    EXPECT_EQ(account.failed_step, Step::send);
    EXPECT_EQ(account.result, -EPIPE);
  }
}

}  // namespace
}  // namespace bench
