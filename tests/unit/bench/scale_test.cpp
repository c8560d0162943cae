// Promises of the group with many sockets: it asks on them by turns, it answers where a message came from, whatever its
// poll set says, and the sockets stay from round to round.
#include "microbench/scale.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

namespace bench {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kBytes = 64;
using Message = std::array<std::uint64_t, kBytes / 8>;

/// A network (sides.cuh) of sockets with numbers from 10 on. What arrives on them is given in parts.
class ManySockets {
 public:
  struct Wire {
    std::int64_t send(const gpusock::ThisThread&, const void* data, std::uint64_t bytes) {
      all.sent.emplace_back(socket, *static_cast<const std::uint64_t*>(data));
      if (all.echoes) all.arrived[socket].emplace_back(static_cast<const char*>(data), bytes);
      return static_cast<std::int64_t>(bytes);
    }
    /// Waits for all bytes, which come in parts.
    std::int64_t receive(const gpusock::ThisThread& group, void* data, std::uint64_t bytes) {
      std::uint64_t done = 0;
      while (done < bytes) {
        const auto got = receive_now(group, static_cast<char*>(data) + done, bytes - done);
        if (got <= 0) return got;
        done += static_cast<std::uint64_t>(got);
      }
      return static_cast<std::int64_t>(done);
    }
    std::int64_t receive_now(const gpusock::ThisThread&, void* data, std::uint64_t bytes) {
      auto& parts = all.arrived[socket];
      if (parts.empty()) return -EAGAIN;
      EXPECT_LE(parts.front().size(), bytes);
      const std::string part = parts.front();
      parts.pop_front();
      std::memcpy(data, part.data(), part.size());
      return static_cast<std::int64_t>(part.size());
    }
    void close(const gpusock::ThisThread&) {}

    ManySockets& all;
    int socket;
  };

  int connect(const gpusock::ThisThread&) { return next_++; }
  int accept(const gpusock::ThisThread&) { return next_++; }
  Wire wire(int socket) { return {*this, socket}; }
  Wire wire(int socket, std::uint64_t) { return wire(socket); }
  int open_set(const gpusock::ThisThread&) { return 5; }
  int watch(const gpusock::ThisThread&, int set, int socket, std::uint64_t tag) {
    EXPECT_EQ(set, 5);
    watched[tag] = socket;
    return 0;
  }
  /// The next list of tags that the test has given; -ECANCELED after the last one.
  int wait(const gpusock::ThisThread&, int set, gpusock::PollEvent* events, int max) {
    EXPECT_EQ(set, 5);
    if (ready.empty()) return -ECANCELED;
    const auto tags = ready.front();
    ready.pop_front();
    EXPECT_LE(static_cast<int>(tags.size()), max);
    for (std::size_t i = 0; i < tags.size(); ++i) events[i].tag = tags[i];
    return static_cast<int>(tags.size());
  }
  void arrives(int socket, std::uint64_t first_word, std::size_t cut = kBytes) {
    Message message{first_word};
    const std::string bytes(reinterpret_cast<const char*>(message.data()), kBytes);
    arrived[socket].push_back(bytes.substr(0, cut));
    if (cut < kBytes) arrived[socket].push_back(bytes.substr(cut));
  }

  bool echoes = false;                              ///< what is sent arrives on the same socket
  std::vector<std::pair<int, std::uint64_t>> sent;  ///< by which socket, and its first word
  std::map<int, std::deque<std::string>> arrived;
  std::map<std::uint64_t, int> watched;
  std::deque<std::vector<std::uint64_t>> ready;

 private:
  int next_ = 10;
};

/// One side, whose sockets stay from round to round.
struct Side {
  explicit Side(std::uint32_t sockets) : sockets_(sockets) {
    job.question = Question::scale;
    job.bytes = kBytes;
    job.crowd = sockets;
    job.token = 7;
    job.duration_ns = ~std::uint64_t{0};
  }
  /// The asking side's round: so many messages on `turns` of the sockets. Then the answering side's.
  Account ask(std::uint32_t turns, std::uint64_t messages) {
    job.turns = turns;
    job.messages_max = job.samples_max = messages;
    samples_.resize(messages);
    return play([&](const Memory& memory) { ask_by_turns(gpusock::this_thread(), network, job, memory); });
  }
  Account answer() {
    return play([&](const Memory& memory) { answer_ready(gpusock::this_thread(), network, job, memory); });
  }

  Job job;
  ManySockets network;

 private:
  template <class Play>
  Account play(Play play) {
    Account account;
    play({out_.data(), in_.data(), samples_.data(), &account, nullptr, {&state_, sockets_.data()}});
    return account;
  }

  Message out_{}, in_{};
  std::vector<std::uint64_t> samples_;
  std::vector<std::int32_t> sockets_;
  CrowdState state_;
};

std::vector<int> sockets_of(const std::vector<std::pair<int, std::uint64_t>>& sent) {
  std::vector<int> sockets;
  for (const auto& [socket, word] : sent) sockets.push_back(socket);
  return sockets;
}

TEST(Turns, MessagesGoOutOnTheSocketsInTurnAndTheStopComesLast) {
  Side side(3);
  side.network.echoes = true;
  EXPECT_EQ(side.ask(3, 5).messages, 5u);
  EXPECT_THAT(sockets_of(side.network.sent), ElementsAre(10, 11, 12, 10, 11, 12, 10, 11, 12));  // three greetings
  EXPECT_EQ(side.network.sent.back().second, kStopWord);
}

TEST(Turns, IdleSocketsCarryNothingAfterTheirGreetings) {
  Side side(3);
  side.network.echoes = true;
  EXPECT_EQ(side.ask(1, 4).messages, 4u);
  EXPECT_THAT(sockets_of(side.network.sent), ElementsAre(10, 11, 12, 10, 10, 10, 10, 10));
}

TEST(Turns, SocketsStayFromRoundToRound) {
  Side side(2);
  side.network.echoes = true;
  side.ask(1, 1);
  side.network.sent.clear();
  side.network.arrived.clear();  // the stop, which nobody has taken
  EXPECT_EQ(side.ask(2, 2).messages, 2u);
  EXPECT_THAT(sockets_of(side.network.sent), ElementsAre(10, 11, 10));
}

/// An answering side to which two sockets will connect.
Side accepted() {
  Side side(2);
  for (int index = 0; index < 2; ++index) {
    Message greeting{7, static_cast<std::uint64_t>(index)};
    side.network.arrived[10 + index].emplace_back(reinterpret_cast<const char*>(greeting.data()), kBytes);
  }
  return side;
}

TEST(Ready, MessagesAreAnsweredWhereTheyCameFromUntilTheStop) {
  Side side = accepted();
  side.network.arrives(11, 100);
  side.network.arrives(10, 101, 9);  // in two parts
  side.network.arrives(11, kStopWord);
  side.network.ready = {{1}, {0, 1}};
  EXPECT_EQ(side.answer().failed_step, Step::none);
  EXPECT_THAT(side.network.watched, ElementsAre(std::pair(0u, 10), std::pair(1u, 11)));
  const std::vector<std::pair<int, std::uint64_t>> expected{{10, 7}, {11, 7}, {11, 100}, {10, 101}};
  EXPECT_EQ(side.network.sent, expected);
}

TEST(Ready, AnEventWithoutAMessageIsPassedOver) {
  Side side = accepted();
  side.network.arrives(11, 100);
  side.network.arrives(11, kStopWord);
  side.network.ready = {{0, 1, 0}, {0}, {1}};
  EXPECT_EQ(side.answer().failed_step, Step::none);
  EXPECT_THAT(sockets_of(side.network.sent), ElementsAre(10, 11, 11));
}

TEST(Ready, ASocketThatEndsOrAWaitThatFailsEndsTheRound) {
  Side side = accepted();
  side.network.arrived[10].emplace_back();  // the end of its stream
  side.network.ready = {{0}};
  const Account ended = side.answer();
  EXPECT_EQ(ended.failed_step, Step::receive);
  EXPECT_EQ(ended.result, -ECONNRESET);
  const Account canceled = side.answer();
  EXPECT_EQ(canceled.failed_step, Step::receive);
  EXPECT_EQ(canceled.result, -ECANCELED);
}

}  // namespace
}  // namespace bench
