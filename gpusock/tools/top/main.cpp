// gpusock-top: the contexts and sockets of this machine, live. See docs/tools.md.
#include "plain_types/clock.hpp"
#include "gpusock/tools/top/keys.hpp"
#include "gpusock/tools/top/table.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

using gpusock::detail::monotonic_ns;
using gpusock::detail::unix_ns;
using gpusock::top::Look;
using gpusock::top::Observation;
using gpusock::top::Sort;
using gpusock::top::Wish;

constexpr double kSecondNs = 1e9;
constexpr std::uint64_t kNapNs = 20'000'000;
constexpr unsigned kPidMax = 1u << 22;  // the operating system's own bound

struct TopOptions {
  bool once = false;
  std::string json_file;  ///< empty: a table
  double interval_s = 1;
  double wait_s = 2;
  unsigned pid = 0;  // 0: all
  std::string folder = "/dev/shm";
  gpusock::top::TableOptions table;
  unsigned limit = 0;  // sockets of each context; 0: all
};

const std::map<std::string, Sort> kSorts{
    {"socket", Sort::socket}, {"peer", Sort::peer},       {"rate", Sort::rate}, {"bytes", Sort::bytes},
    {"fill", Sort::fill},     {"stalled", Sort::stalled}, {"age", Sort::age},   {"retransmits", Sort::retransmits}};

constexpr const char* kFooter = R"(
In a terminal of less than 132 columns a line has what fits in 80: ADDRESS is the peer's address, of a listener its own.
STATE is then: open (connecting, agreeing on a link), listen, wait (not accepted yet), conn (connected), ended (the peer
sends no more), rdshut (the peer reads no more), close (closed, but what was sent is still being delivered), failed.
TXQ and RXQ: how full the rings are. STALLED: for how long nothing was taken out of a ring that has bytes.

steps/s: how often a context's proxy looked at its sockets, on its own thread or on that of a caller that waits. It is
high while anything moves or waits, and near 0 if all is idle. wakeups/s: how often the proxy's own thread was woken
from sleep. Many wake-ups with little traffic: messages come one by one, each after a pause.

In a terminal: arrows or j and k, page up and down (b, space), home and end (g, G) scroll through the whole table; at its
top it shows as much of each context as there is room for. q ends.

Exit status: 0 shown (also if there are no contexts), 1 failed, 2 misuse, also of GPUSOCK_OBSERVE. SIGINT and SIGTERM end it.)";

std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * kSecondNs); }

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

/// Waits. Returns false once SIGINT or SIGTERM has come.
bool wait_ns(std::uint64_t ns) {
  const sigset_t signals = end_signals();
  const timespec time{static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
  return sigtimedwait(&signals, nullptr, &time) < 0;
}

/// The size of the terminal on standard output; nothing if that is not a terminal.
std::optional<winsize> terminal_size() {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known && size.ws_row >= 2 && size.ws_col >= 2 ? std::optional(size) : std::nullopt;
}

/// Makes what a terminal shows of the table: as much of each context as there is room for or, once the user scrolls,
/// the lines of the whole table from `first` on.
std::string make_screen(const Look& look, const TopOptions& options, const winsize& size, Wish wish,
                        std::size_t& first) {
  const std::size_t rows = size.ws_row - 1u;
  gpusock::top::TableOptions table = options.table;
  table.columns = size.ws_col;
  const std::string whole = make_table(look, unix_ns(), table);
  first = gpusock::top::scroll(first, wish, gpusock::top::lines_below_titles(whole),
                               gpusock::top::room_in_window(whole, rows));
  if (first != 0) return gpusock::top::cut(gpusock::top::make_window(whole, first, rows), rows, size.ws_col);
  table.rows = rows;
  return gpusock::top::cut(make_table(look, unix_ns(), table), rows, size.ws_col);
}

/// Prints the table; on a terminal from its top, and cut to its size.
void print_live(const Look& look, const TopOptions& options, Wish wish, std::size_t& first) {
  const auto terminal = terminal_size();
  if (!terminal) {
    gpusock::program::print_now(make_table(look, unix_ns(), options.table) + "\n");
    return;
  }
  std::string cleared;
  for (const char c : make_screen(look, options, *terminal, wish, first)) {
    if (c == '\n') cleared += "\033[K";
    cleared += c;
  }
  gpusock::program::print_now("\033[H" + cleared + "\033[J");
}

/// Takes two snapshots of each context, because rates need two.
void run_once(Observation& observation, const TopOptions& options) {
  const std::uint64_t wait = to_ns(options.wait_s);
  const auto nap = [] { return wait_ns(kNapNs); };
  Look look = observation.look_for_answers(monotonic_ns(), wait, nap);
  look = observation.look_for_answers(monotonic_ns(), wait, nap);
  gpusock::top::TableOptions table = options.table;
  if (const auto terminal = terminal_size()) table.columns = terminal->ws_col;
  if (options.json_file.empty()) {
    gpusock::program::print(make_table(look, unix_ns(), table));
  } else {
    gpusock::program::write_file(options.json_file, make_json(look, unix_ns(), true));
  }
}

void run_live(Observation& observation, const TopOptions& options) {
  const std::uint64_t interval = to_ns(options.interval_s), patience = to_ns(options.wait_s);
  Look look = observation.look_for_answers(monotonic_ns(), patience, [] { return wait_ns(kNapNs); });
  if (!options.json_file.empty()) {
    for (gpusock::program::JsonOutput json(options.json_file);;) {
      json.write(make_json(look, unix_ns(), false));
      if (!wait_ns(interval)) return json.close();
      look = observation.look(2 * interval + patience, patience);
    }
  }
  gpusock::top::Keys keys(terminal_size().has_value());
  std::size_t first = 0;  // the first line of the table that is shown
  Wish wish = Wish::none;
  for (std::uint64_t next_ns = monotonic_ns() + interval;;) {
    print_live(look, options, wish, first);
    const std::uint64_t now_ns = monotonic_ns();
    wish = keys.wait(next_ns - std::min(now_ns, next_ns));
    if (wish == Wish::quit) return;
    if (wish != Wish::none) continue;  // the same table, scrolled
    look = observation.look(2 * interval + patience, patience);
    next_ns = monotonic_ns() + interval;
  }
}

std::vector<std::string> words_of_sorts() {
  std::vector<std::string> words;
  words.reserve(kSorts.size());
  for (const auto& [word, sort] : kSorts) words.push_back(word);
  return words;
}

/// Parses the arguments. Returns the status to exit with at once, or nothing.
std::optional<int> parse(int argc, char** argv, TopOptions& options) {
  const char* folder = std::getenv("GPUSOCK_OBSERVE");
  const std::string observe = folder == nullptr || *folder == '\0' ? "off" : folder;
  if (observe.starts_with('/')) options.folder = observe;
  std::string sort = "socket";
  gpusock::program::Arguments arguments("Live table of the gpusock contexts and sockets of this machine.", kFooter);
  arguments.flag("--once", options.once, "one table, with rates over a fifth of a second, then end");
  arguments.json(options.json_file, "JSON instead of a table: an object, or one on each line without --once");
  arguments.number("--interval", options.interval_s, "seconds between tables", 0.1, 10.0);
  arguments.number("--wait", options.wait_s, "seconds without an answer after which a context counts as stalled", 1.5,
                   600.0);
  arguments.number("--pid", options.pid, "only this process's contexts", 1u, kPidMax).shown_default("");
  arguments.flag("--info", options.table.details,
                 "more about each socket; of TCP connections round-trip time, congestion window, retransmits");
  arguments.choice("--sort", sort, words_of_sorts(),
                   "which sockets of a context come first; socket, peer: the smallest; retransmits also shows --info");
  arguments
      .number("--limit", options.limit, "sockets of each context in the table; so many more are counted", 1u, kPidMax)
      .shown_default("");
  arguments.text("--folder", options.folder, "where contexts keep their pages (GPUSOCK_OBSERVE)");
  arguments.check([&]() -> std::string {
    options.table.sort = kSorts.at(sort);
    options.table.limit = options.limit;
    if (options.table.sort == Sort::retransmits) options.table.details = true;  // only the details have them
    if (observe == "off" || observe.starts_with('/')) return {};
    return "GPUSOCK_OBSERVE='" + observe + "' must be an absolute path, or off";
  });
  return arguments.parse(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  TopOptions options;
  if (const auto status = parse(argc, argv, options)) return *status;
  gpusock::program::block_stop_signals();
  return gpusock::program::run("gpusock-top", [&] {
    Observation observation(options.folder, options.pid == 0 ? std::nullopt : std::optional(options.pid),
                            options.table.details);
    if (options.once) {
      run_once(observation, options);
    } else {
      run_live(observation, options);
    }
    return gpusock::program::kSuccess;
  });
}
