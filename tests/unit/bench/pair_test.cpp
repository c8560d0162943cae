// Promises of a contestant of two halves: if a round fails, its error tells what failed on both sides.
#include "microbench/contestant.hpp"
#include "microbench/scale.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <deque>
#include <utility>

namespace bench {
namespace {

using ::testing::EndsWith;
using ::testing::Eq;
using ::testing::StartsWith;

Account failure(Step step, std::int64_t result) {
  Account account;
  account.failed_step = step;
  account.result = result;
  return account;
}

/// An asking side that fails as if its peer had closed the connection.
class Left final : public Asker {
 public:
  std::string name() const override { return "left"; }
  std::string description() const override { return name(); }
  void prepare(const Job&) override {}
  Round ask(const gpusock::Endpoint&, const Job& job) override {
    require_success(failure(Step::send, -EPIPE), job, "the measuring kernel");
    return {};
  }
};

/// An answering side whose round has ended with this account, or with an exception of this text.
class Ended final : public Answerer {
 public:
  explicit Ended(Account account, std::string throws = {}) : account_(account), throws_(std::move(throws)) {}
  gpusock::Endpoint where() const override { return {}; }
  void start(const Job&) override {}
  Answer finish() override {
    EXPECT_TRUE(canceled_) << "it would wait for a peer that has failed";
    if (!throws_.empty()) throw std::runtime_error(throws_);
    return {account_};
  }
  void cancel() noexcept override { canceled_ = true; }

 private:
  Account account_;
  std::string throws_;
  bool canceled_ = false;
};

/// The text of the error of a round whose asking side has lost its connection.
std::string text_with(std::unique_ptr<Answerer> answerer) {
  Job job;
  job.question = Question::bandwidth;
  job.bytes = 4096;
  try {
    bench::make_pair(std::make_unique<Left>(), std::move(answerer))->run(job);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kLost = "the measuring kernel, messages of 4096 bytes: sending: Broken pipe (EPIPE)";

TEST(FailedRound, TellsWhyTheAnsweringSideClosedTheConnection) {
  const auto text = text_with(std::make_unique<Ended>(failure(Step::receive, -ETIMEDOUT)));
  EXPECT_THAT(text, StartsWith(kLost));
  EXPECT_THAT(text,
              EndsWith("; the answering side, messages of 4096 bytes: receiving: Connection timed out (ETIMEDOUT)"));
}

TEST(FailedRound, TellsOfAKernelFaultOfTheAnsweringSide) {
  const auto text = text_with(std::make_unique<Ended>(Account{}, "a fault"));
  EXPECT_THAT(text, Eq(std::string(kLost) + "; the answering side: a fault"));
}

TEST(FailedRound, TellsNothingOfAnAnsweringSideThatOnlyWaited) {
  EXPECT_EQ(text_with(std::make_unique<Ended>(failure(Step::accept, -ECANCELED))), kLost);
  EXPECT_EQ(text_with(std::make_unique<Ended>(Account{})), kLost);
}

/// A network whose connections bring one message each. After the last one accept() fails with ECANCELED.
class Visitors {
 public:
  struct Wire {
    std::int64_t receive(const gpusock::ThisThread&, std::uint64_t* data, std::uint64_t) {
      std::copy(visit.words.begin(), visit.words.end(), data);
      return std::exchange(visit.result, 0);
    }
    void close(const gpusock::ThisThread&) {}

    struct Visit {
      std::int64_t result;
      std::array<std::uint64_t, 2> words{};
    } visit;
  };

  explicit Visitors(std::deque<Wire::Visit> visits) : visits_(std::move(visits)) {}
  int accept(const gpusock::ThisThread&) { return visits_.empty() ? -ECANCELED : 1; }
  Wire wire(int, std::uint64_t) {
    const Wire wire{visits_.front()};
    visits_.pop_front();
    return wire;
  }

 private:
  std::deque<Wire::Visit> visits_;
};

Account account_after(std::deque<Visitors::Wire::Visit> visits) {
  Job job;
  job.bytes = 64;
  job.token = 7;
  std::array<std::uint64_t, 8> out{}, in{};
  Account account;
  Visitors network(std::move(visits));
  accept_greeted(gpusock::this_thread(), network, job, {out.data(), in.data(), nullptr, &account});
  return account;
}

TEST(Acceptor, NotesWhyItHasClosedTheLatestConnectionThatDidNotGreet) {
  constexpr auto kWhole = static_cast<std::int64_t>(kGreetingBytes);
  const auto silent = account_after({{3}, {-ETIMEDOUT}});
  EXPECT_EQ(silent.failed_step, Step::greet);
  EXPECT_EQ(silent.result, -ETIMEDOUT);
  const auto stranger = account_after({{kWhole, {8, 0}}});
  EXPECT_EQ(stranger.failed_step, Step::greet);
  EXPECT_EQ(stranger.result, -EPROTO);
  EXPECT_EQ(account_after({}).failed_step, Step::accept);
}

TEST(Acceptor, ForgetsTheOthersWhenAConnectionGreets) {
  constexpr auto kWhole = static_cast<std::int64_t>(kGreetingBytes);
  EXPECT_EQ(account_after({{-ETIMEDOUT}, {kWhole, {7, 0}}}).failed_step, Step::none);
}

}  // namespace
}  // namespace bench
