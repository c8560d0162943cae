// gpusock-top: the contexts and sockets of this machine, live. See docs/tools.md.
#include "gpusock/detail/clock.hpp"
#include "gpusock/tools/top/table.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace {

using gpusock::proxy::monotonic_ns;
using gpusock::proxy::unix_ns;
using gpusock::top::Look;
using gpusock::top::Observation;

constexpr double kSecondNs = 1e9;
constexpr std::uint64_t kNapNs = 20'000'000;
constexpr unsigned kPidMax = 1u << 22;  // the operating system's own bound

struct TopOptions {
  bool once = false;
  bool json = false;
  double interval_s = 1;
  double wait_s = 2;
  unsigned pid = 0;  // all
  std::string folder = "/dev/shm";
};

std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * kSecondNs); }

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

/// Waits; false once SIGINT or SIGTERM has come.
bool wait_ns(std::uint64_t ns) {
  const sigset_t signals = end_signals();
  const timespec time{static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
  return sigtimedwait(&signals, nullptr, &time) < 0;
}

/// To a terminal: from its top, and no longer than it is.
void print_live(const std::string& text) {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2 ||
      size.ws_col < 2) {
    gpusock::program::print_now(text + "\n");
    return;
  }
  std::string shown = gpusock::top::cut(text, size.ws_row - 1u, size.ws_col);
  std::string cleared;
  for (const char c : shown) {
    if (c == '\n') cleared += "\033[K";
    cleared += c;
  }
  gpusock::program::print_now("\033[H" + cleared + "\033[J");
}

/// Two snapshots of each context: rates need them.
void run_once(Observation& observation, const TopOptions& options) {
  const std::uint64_t wait = to_ns(options.wait_s);
  const auto nap = [] { return wait_ns(kNapNs); };
  Look look = observation.look_for_answers(monotonic_ns(), wait, nap);
  look = observation.look_for_answers(monotonic_ns(), wait, nap);
  gpusock::program::print(options.json ? make_json(look, unix_ns(), true) : make_table(look, unix_ns()));
}

void run_live(Observation& observation, const TopOptions& options) {
  const std::uint64_t interval = to_ns(options.interval_s), patience = to_ns(options.wait_s);
  Look look = observation.look_for_answers(monotonic_ns(), patience, [] { return wait_ns(kNapNs); });
  for (;;) {
    if (options.json) {
      gpusock::program::print_now(make_json(look, unix_ns(), false));
    } else {
      print_live(make_table(look, unix_ns()));
    }
    if (!wait_ns(interval)) return;
    look = observation.look(2 * interval + patience, patience);
  }
}

/// The status to exit with at once, or nothing.
std::optional<int> parse(int argc, char** argv, TopOptions& options) {
  const char* folder = std::getenv("GPUSOCK_OBSERVE");
  const std::string observe = folder == nullptr || *folder == '\0' ? "off" : folder;
  if (observe.starts_with('/')) options.folder = observe;
  gpusock::program::Arguments arguments(
      "Live table of the gpusock contexts and sockets of this machine.",
      "\nExit status: 0 shown (also where there are no contexts), 1 failed, 2 misuse, also of GPUSOCK_OBSERVE.\n"
      "SIGINT and SIGTERM end it.");
  arguments.flag("--once", options.once, "one table, with rates over a fifth of a second, then end");
  arguments.flag("--json", options.json, "JSON instead of a table: an object, or one on each line without --once");
  arguments.number("--interval", options.interval_s, "seconds between tables", 0.1, 10.0);
  arguments.number("--wait", options.wait_s, "seconds without an answer after which a context counts as stalled", 1.5,
                   600.0);
  arguments.number("--pid", options.pid, "only this process's contexts", 1u, kPidMax).shown_default("");
  arguments.text("--folder", options.folder, "where contexts keep their pages (GPUSOCK_OBSERVE)");
  arguments.check([&]() -> std::string {
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
    Observation observation(options.folder, options.pid == 0 ? std::nullopt : std::optional(options.pid));
    if (options.once) {
      run_once(observation, options);
    } else {
      run_live(observation, options);
    }
    return gpusock::program::kSuccess;
  });
}
