// gpusock-top: the contexts and sockets of this machine, live. See docs/tools.md.
#include "gpusock/tools/top/table.hpp"
#include "host_proxy/error.hpp"

#include <CLI/CLI.hpp>

#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

namespace {

using gpusock::top::Look;
using gpusock::top::Observation;

constexpr double kSecondNs = 1e9;
constexpr std::uint64_t kNapNs = 20'000'000;

struct TopOptions {
  bool once = false;
  bool json = false;
  double interval_s = 1;
  double wait_s = 2;
  std::optional<std::uint32_t> pid;
  std::string folder = "/dev/shm";
};

std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * kSecondNs); }

std::uint64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

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
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2 || size.ws_col < 2) {
    std::cout << text << std::endl;
    return;
  }
  std::string shown = gpusock::top::cut(text, size.ws_row - 1u, size.ws_col);
  std::string cleared;
  for (const char c : shown) {
    if (c == '\n') cleared += "\033[K";
    cleared += c;
  }
  std::cout << "\033[H" << cleared << "\033[J" << std::flush;
}

/// Two snapshots of each context: rates need them.
void run_once(Observation& observation, const TopOptions& options) {
  const std::uint64_t wait = to_ns(options.wait_s);
  const auto nap = [] { return wait_ns(kNapNs); };
  Look look = observation.look_for_answers(gpusock::top::monotonic_ns(), wait, nap);
  look = observation.look_for_answers(gpusock::top::monotonic_ns(), wait, nap);
  std::cout << (options.json ? make_json(look, unix_ns(), true) : make_table(look, unix_ns()));
}

void run_live(Observation& observation, const TopOptions& options) {
  const std::uint64_t interval = to_ns(options.interval_s), patience = to_ns(options.wait_s);
  Look look = observation.look_for_answers(gpusock::top::monotonic_ns(), patience, [] { return wait_ns(kNapNs); });
  for (;;) {
    if (options.json) {
      std::cout << make_json(look, unix_ns(), false) << std::flush;
    } else {
      print_live(make_table(look, unix_ns()));
    }
    if (!std::cout || !wait_ns(interval)) return;
    look = observation.look(2 * interval + patience, patience);
  }
}

void add_options(CLI::App& app, TopOptions& options) {
  if (const char* folder = std::getenv("GPUSOCK_OBSERVE"); folder != nullptr && *folder == '/') options.folder = folder;
  app.add_flag("--once", options.once, "one table, with rates over a fifth of a second, then end");
  app.add_flag("--json", options.json, "JSON instead of a table: an object, or one on each line without --once");
  app.add_option("--interval", options.interval_s, "seconds between tables")->capture_default_str()->check(CLI::Range(0.1, 10.0));
  app.add_option("--wait", options.wait_s, "seconds without an answer after which a context counts as stalled")
      ->capture_default_str()
      ->check(CLI::Range(1.5, 600.0));
  app.add_option("--pid", options.pid, "only this process's contexts");
  app.add_option("--folder", options.folder, "where contexts keep their pages (GPUSOCK_OBSERVE)")->capture_default_str();
  app.footer("\nExit status: 0 shown (also where there are no contexts), 1 failed, 2 misuse. SIGINT and SIGTERM end it.");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Live table of the gpusock contexts and sockets of this machine.");
  TopOptions options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : 2;
  }
  const sigset_t signals = end_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  try {
    Observation observation(options.folder, options.pid);
    if (options.once) {
      run_once(observation, options);
    } else {
      run_live(observation, options);
    }
    return std::cout.flush() ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << "gpusock-top: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
