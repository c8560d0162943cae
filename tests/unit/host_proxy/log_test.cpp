// The log never waits, and no kind of message drowns the others.
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/log_limiter.hpp"
#include "host_proxy/base/standard_error.hpp"
#include "host_proxy/net/posix_network.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::proxy {
namespace {

/// Puts a descriptor in the place of standard error, and takes it back.
class AsStandardError {
 public:
  explicit AsStandardError(const Descriptor& other) : before_(dup(STDERR_FILENO)) { dup2(other.get(), STDERR_FILENO); }
  ~AsStandardError() { dup2(before_.get(), STDERR_FILENO); }
  AsStandardError(const AsStandardError&) = delete;
  AsStandardError& operator=(const AsStandardError&) = delete;

 private:
  Descriptor before_;
};

struct Ends {
  Descriptor in, out;  ///< what is written to `in` is read from `out`

  /// All that is there.
  std::string read() const {
    std::string text;
    char bytes[4096];
    fcntl(out.get(), F_SETFL, O_NONBLOCK);
    for (ssize_t got = 0; (got = ::read(out.get(), bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
    return text;
  }
};

Ends make_pipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  return {Descriptor(ends[1]), Descriptor(ends[0])};
}

Ends make_socket() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {Descriptor(ends[1]), Descriptor(ends[0])};
}

/// While it lives, the program may go on for 20 s: a write that waits waits for ever.
class TimeLimit {
 public:
  TimeLimit() { alarm(20); }
  ~TimeLimit() { alarm(0); }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
};

class Full : public testing::TestWithParam<Ends (*)()> {};

TEST_P(Full, StandardErrorCostsLinesAndNoTime) {
  const Ends ends = GetParam()();
  StandardError error;
  {
    const AsStandardError replaced(ends.in);
    {
      const TimeLimit limit;
      for (int i = 0; i < 3000; ++i) error.write(std::string(200, 'x') + "\n");
    }
    EXPECT_EQ(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "other writers have the same descriptor";
    const std::string before = ends.read();
    EXPECT_EQ(before.size() % 201, 0u) << "whole lines";
    error.write("next\n");
    EXPECT_EQ(ends.read(), "gpusock: " + std::to_string(3000 - before.size() / 201) +
                               " line(s) were lost: standard error was full\nnext\n");
    error.write("then\n");
    EXPECT_EQ(ends.read(), "then\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Log, Full, testing::Values(&make_pipe, &make_socket),
                         [](const auto& kind) { return kind.index == 0 ? "Pipe" : "Socket"; });

TEST(StandardErrorLines, AreCutToWhatAPipeTakesInOnePiece) {
  const Ends ends = make_pipe();
  {
    const AsStandardError replaced(ends.in);
    StandardError().write(std::string(2 * PIPE_BUF, 'x') + "\n");
  }
  const std::string text = ends.read();
  EXPECT_EQ(text.size(), std::size_t{PIPE_BUF});
  EXPECT_EQ(text.substr(text.size() - 5), "x...\n");
}

TEST(StandardErrorLines, GoNowhereWhereItIsClosed) {
  const Descriptor before(dup(STDERR_FILENO));
  ::close(STDERR_FILENO);
  StandardError().write("lost\n");
  dup2(before.get(), STDERR_FILENO);
}

constexpr std::uint64_t kStart = 5'000'000'000;
using Lines = std::vector<std::string>;

Lines texts(const LogLimiter::Lines& lines) {
  Lines texts;
  for (const LogLimiter::Line& line : lines) texts.push_back(line.text);
  return texts;
}
Lines admit(LogLimiter& limiter, const CodeLine& kind, const std::string& message, std::uint64_t now_ns) {
  return texts(limiter.admit(kind, LogLevel::warn, message, now_ns));
}

TEST(LogLimiter, EachKindHasTenLinesASecondAndTheNextOneSaysHowManyWereNotLogged) {
  LogLimiter limiter;
  const auto one = CodeLine::current();
  const auto other = CodeLine::current();
  int number = 0;
  const auto next = [&] { return "message " + std::to_string(++number); };
  for (std::uint64_t i = 0; i < LogLimiter::kLinesPerWindow; ++i) {
    const std::string message = next();
    EXPECT_EQ(admit(limiter, one, message, kStart + i), Lines{message});
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(admit(limiter, one, next(), kStart + LogLimiter::kWindowNs - 1), Lines{});
  EXPECT_EQ(admit(limiter, other, "other", kStart), Lines{"other"});
  EXPECT_EQ(admit(limiter, one, "then", kStart + LogLimiter::kWindowNs),
            Lines{"then (and 1000 more like this, not logged)"});
  EXPECT_EQ(admit(limiter, one, "last", kStart + LogLimiter::kWindowNs), Lines{"last"});
}

TEST(LogLimiter, EqualMessagesAreWrittenOnceAndCounted) {
  LogLimiter limiter;
  const auto kind = CodeLine::current();
  EXPECT_EQ(admit(limiter, kind, "refused", kStart), Lines{"refused"});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(admit(limiter, kind, "refused", kStart + 1), Lines{});
  EXPECT_EQ(texts(limiter.overdue(kStart + 2)), Lines{}) << "more may come";
  EXPECT_EQ(admit(limiter, kind, "another", kStart + 2), (Lines{"refused (9 more alike)", "another"}));
  EXPECT_EQ(admit(limiter, kind, "another", kStart + 3), Lines{});
  EXPECT_EQ(texts(limiter.overdue(kStart + LogLimiter::kWindowNs)), Lines{"another (1 more alike)"});
  EXPECT_EQ(texts(limiter.rest()), Lines{});
}

TEST(LogLimiter, EqualMessagesOfLaterSecondsSayHowManyCameBetween) {
  LogLimiter limiter;
  const auto kind = CodeLine::current();
  for (int i = 0; i < 4; ++i) admit(limiter, kind, "refused", kStart);
  EXPECT_EQ(admit(limiter, kind, "refused", kStart + LogLimiter::kWindowNs), Lines{"refused (3 more alike)"});
  admit(limiter, kind, "refused", kStart + LogLimiter::kWindowNs);
  EXPECT_EQ(texts(limiter.rest()), Lines{"refused (1 more alike)"}) << "at the end of the program";
  EXPECT_EQ(texts(limiter.rest()), Lines{});
}

TEST(Log, ManyErrorsAreFewLines) {
  static unsigned repeats = 0;  // each is a kind of its own, so that what an earlier one logged counts for none
  const auto kind = CodeLine::current("ManyErrorsAreFewLines", ++repeats);
  const Ends ends = make_pipe();
  {
    const AsStandardError replaced(ends.in);
    for (int i = 0; i < 100; ++i) log_error("number " + std::to_string(i), kind);
  }
  const std::string text = ends.read();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_TRUE(lines >= 1 || std::getenv("GPUSOCK_LOG") != nullptr) << text;
  EXPECT_LE(lines, 90);  // 10, and 10 more for each second that this takes
}

TEST(Log, TheEndOfAProgramSaysHowOftenItsLastMessageCame) {
  if (std::getenv("GPUSOCK_LOG") != nullptr) GTEST_SKIP() << "another level than the default";
  EXPECT_EXIT(
      {
        for (int i = 0; i < 1000; ++i) log_error("the same");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "the same \\([0-9]+ more alike\\)");
}

TEST(LogAcrossFork, AChildLogsAlthoughAnotherThreadWasLogging) {
  const Ends ends = make_pipe();
  const AsStandardError replaced(ends.in);
  const TimeLimit limit;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) log_info("busy"), log_error("busy");
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const TimeLimit of_child;
      log_error("in the child");
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  over = true;
  other.join();
}

}  // namespace
}  // namespace gpusock::proxy
