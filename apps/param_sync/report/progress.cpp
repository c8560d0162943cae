#include "report/progress.hpp"

#include "program/run.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace param_sync {
namespace {

/// True if writing a line does not wait for a reader. Also true if writing would fail: then the write gives the error.
bool output_takes_a_line() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) != 0;
}

}  // namespace

ProgressLine::ProgressLine(int nodes, std::uint32_t batch, bool rewrites)
    : nodes_(nodes), batch_(batch), terminal_(rewrites && isatty(STDOUT_FILENO)) {}

ProgressLine::~ProgressLine() {
  if (open_) gpusock::program::print("\n");
}

void ProgressLine::note_waiting(int rank, double waited_s, double train_s) {
  const std::lock_guard lock(noting_);
  hold_up_.note(rank, waited_s, train_s);
}

std::string ProgressLine::slowest() {
  constexpr double kLeastShare = 0.05;
  const std::lock_guard lock(noting_);
  const HoldUp now = hold_up_.of(nodes_);
  if (now.held < kLeastShare) return "";
  return fmt::format("   rank {} holds the others up {:.0f} %", now.rank, 100 * now.held);
}

std::string ProgressLine::text(const Progress& progress) {
  const double rate = progress.train_s > 0
                          ? static_cast<double>(progress.steps - progress.first_step) / progress.train_s
                          : 0;
  const double push_mb = rate * static_cast<double>(progress.pushed_per_step) / 1e6;
  const std::uint64_t per_epoch = std::max<std::uint64_t>(progress.steps_per_epoch, 1);
  const std::string accuracy = progress.accuracy < 0 ? ""
                                                     : fmt::format("accuracy {:.1f} %   ", 100 * progress.accuracy);
  const std::string share = progress.pushed_per_step >= progress.dense_per_step
                                ? ""
                                : fmt::format(" ({:.1f} % of all)", 100 *
                                                                        static_cast<double>(progress.pushed_per_step) /
                                                                        static_cast<double>(progress.dense_per_step));
  const std::string waited = progress.train_s > 0 && progress.waited_s > 0
                                 ? fmt::format("   waits {:.0f} %", 100 * progress.waited_s / progress.train_s)
                                 : "";
  return fmt::format(
      "epoch {}/{}   step {}/{}   loss {:.4f}   {}{:.0f} samples/s   each node pushes {:.1f} MB/s{}, pulls {:.1f} "
      "MB/s{}{}",
      (std::max<std::uint64_t>(progress.steps, 1) - 1) / per_epoch + 1, progress.steps_all / per_epoch, progress.steps,
      progress.steps_all, progress.loss, accuracy, rate * batch_ * nodes_, push_mb, share,
      rate * static_cast<double>(progress.pulled_per_step) / 1e6, waited, slowest());
}

void ProgressLine::show(const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(1000);
  if (now - last_ < pause && progress.steps != progress.steps_all) return;
  last_ = now;
  const bool last_step = progress.steps == progress.steps_all;
  if (!output_takes_a_line() && !last_step) return;
  if (terminal_) {
    gpusock::program::print("\r" + text(progress) + "\x1b[K");
    open_ = true;
  } else {
    gpusock::program::print(text(progress) + "\n");
  }
  if (output_takes_a_line()) gpusock::program::flush_output();  // else the program flushes at its end
}

}  // namespace param_sync
