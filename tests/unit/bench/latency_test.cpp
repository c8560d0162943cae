// Promises of the round trip's measuring side: how long it warms up before it measures.
#include "microbench/latency.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace bench {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

/// A wire (wire.cuh) whose other side answers each message, after `takes_ns`.
class Echo {
 public:
  explicit Echo(std::uint64_t takes_ns) : takes_ns_(takes_ns) {}

  std::int64_t send(const gpusock::ThisThread&, const std::uint64_t* data, std::uint64_t bytes) {
    sent_at_ns_ = gpusock::clock_ns();
    message_.assign(data, data + words_of(bytes));
    ++sent_;
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t receive(const gpusock::ThisThread&, std::uint64_t* data, std::uint64_t bytes) {
    while (gpusock::clock_ns() - sent_at_ns_ < takes_ns_) continue;
    std::copy(message_.begin(), message_.end(), data);
    return static_cast<std::int64_t>(bytes);
  }
  std::uint64_t sent() const { return sent_; }

 private:
  const std::uint64_t takes_ns_;
  std::uint64_t sent_at_ns_ = 0, sent_ = 0;
  std::vector<std::uint64_t> message_;
};

constexpr std::uint64_t kTimed = 3;

/// Measures kTimed messages, each of which takes `takes_ns` or longer; how many were sent before them.
std::uint64_t warmed_up(std::uint64_t warmup, std::uint64_t warmup_ns, std::uint64_t takes_ns = 0) {
  Job job;
  job.bytes = 64;
  job.warmup = warmup;
  job.warmup_ns = warmup_ns;
  job.messages_max = job.samples_max = kTimed;
  job.duration_ns = kNever;
  std::array<std::uint64_t, 8> out{}, in{};
  std::array<std::uint64_t, kTimed> samples{};
  Account account;
  Echo wire(takes_ns);
  ping(gpusock::this_thread(), wire, job, {out.data(), in.data(), samples.data(), &account});
  EXPECT_EQ(account.messages, kTimed);
  EXPECT_EQ(account.wrong_words, 0u);
  EXPECT_EQ(account.failed_step, Step::none);
  return wire.sent() - kTimed;
}

TEST(WarmUp, HasAsManyMessagesAsItIsTold) {
  for (const std::uint64_t warmup : {0u, 1u, 7u}) EXPECT_EQ(warmed_up(warmup, kNever), warmup);
}

TEST(WarmUp, EndsAfterTheMessageInWhichItsTimeIsOver) { EXPECT_EQ(warmed_up(kWarmupMax, 0), 1u); }

TEST(WarmUp, ItsTimeIsThatOfAllItsMessages) {
  const std::uint64_t message_ns = 1'000'000;
  EXPECT_LE(warmed_up(kWarmupMax, 50 * message_ns, message_ns), 50u);
}

TEST(WarmUp, TakesAFifthOfASecondUnlessItIsToldAnother) { EXPECT_EQ(Job{}.warmup_ns, 200'000'000u); }

}  // namespace
}  // namespace bench
