#include "gpusock/tools/top/keys.hpp"

#include "plain_types/clock.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <string_view>

namespace gpusock::top {
namespace {

struct Key {
  std::string_view bytes;
  Wish wish;
};

/// Keys as terminals send them (ECMA-48; xterm's control sequences, in both cursor key modes), and the letters of
/// less(1).
constexpr Key kKeys[] = {
    {"\033[A", Wish::up},       {"\033OA", Wish::up},   {"k", Wish::up},
    {"\033[B", Wish::down},     {"\033OB", Wish::down}, {"j", Wish::down},
    {"\033[5~", Wish::page_up}, {"b", Wish::page_up},   {"\033[6~", Wish::page_down},
    {" ", Wish::page_down},     {"\033[H", Wish::home}, {"\033OH", Wish::home},
    {"\033[1~", Wish::home},    {"g", Wish::home},      {"\033[F", Wish::end},
    {"\033OF", Wish::end},      {"\033[4~", Wish::end}, {"G", Wish::end},
    {"q", Wish::quit},
};

}  // namespace

Wish take_key(std::string& typed) {
  for (const auto& [bytes, wish] : kKeys) {
    if (!typed.starts_with(bytes)) continue;
    typed.erase(0, bytes.size());
    return wish;
  }
  const bool incomplete = std::any_of(std::begin(kKeys), std::end(kKeys),
                                      [&](const Key& key) { return key.bytes.starts_with(typed); });
  if (!incomplete) typed.erase(0, 1);
  return Wish::none;
}

std::size_t scroll(std::size_t first, Wish wish, std::size_t lines, std::size_t rows) {
  const std::size_t last = lines > rows ? lines - rows : 0;
  const std::size_t page = std::max<std::size_t>(rows, 2) - 1;  // one line stays in sight
  switch (wish) {
    case Wish::up:
      first -= std::min<std::size_t>(first, 1);
      break;
    case Wish::down:
      ++first;
      break;
    case Wish::page_up:
      first -= std::min(first, page);
      break;
    case Wish::page_down:
      first += page;
      break;
    case Wish::home:
      return 0;
    case Wish::end:
      return last;
    default:
      break;
  }
  return std::min(first, last);
}

Keys::Keys(bool reads) : reads_(reads) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Keys::~Keys() {
  if (taken_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  if (signals_ >= 0) close(signals_);
}

/// Called before each wait: a process that was stopped and goes on finds the shell's settings.
void Keys::take_terminal() {
  if (!reads_ || isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) != getpgrp())
    return;  // a process in the background must not read
  termios now{};
  if (tcgetattr(STDIN_FILENO, &now) != 0) return;
  if (!taken_) before_ = now;
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  taken_ = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

Wish Keys::wait(std::uint64_t ns) {
  take_terminal();
  const std::uint64_t until_ns = detail::monotonic_ns() + ns;
  for (;;) {
    while (!typed_.empty()) {
      const std::size_t before = typed_.size();
      if (const Wish wish = take_key(typed_); wish != Wish::none) return wish;
      if (typed_.size() == before) break;
    }
    const std::uint64_t now_ns = detail::monotonic_ns();
    if (now_ns >= until_ns) {
      typed_.clear();  // an escape sequence that was never completed
      return Wish::none;
    }
    pollfd files[] = {{signals_, POLLIN, 0}, {taken_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const timespec time{static_cast<time_t>((until_ns - now_ns) / 1'000'000'000u),
                        static_cast<long>((until_ns - now_ns) % 1'000'000'000u)};
    if (ppoll(files, 2, &time, nullptr) < 0) continue;
    if (files[0].revents != 0) return Wish::quit;
    if (files[1].revents == 0) continue;
    char bytes[64];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got <= 0) return Wish::quit;  // the terminal is gone
    typed_.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace gpusock::top
