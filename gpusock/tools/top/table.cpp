#include "gpusock/tools/top/table.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iterator>

namespace gpusock::top {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
/// Bytes that lie in a ring for less time are on their way.
constexpr std::uint64_t kShownStallNs = 500'000'000;
constexpr const char* kLine =
    "  {:>10}  {:<9} {:<5} {:<21} {:<21} {:>6} {:>6} {:>7} {:>7} {:>5} {:>5}  {:<8} {:>6}  {}\n";

std::string per_second(const std::optional<double>& rate) { return rate ? short_number(*rate) : "-"; }

/// How full a ring is, in percent; any byte is at least 1 %.
std::string fill(std::uint64_t bytes, std::uint64_t capacity) {
  if (capacity == 0) return "-";
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(capacity);
  return fmt::format("{:.0f}%", bytes == 0 ? 0 : std::max(1.0, percent));
}

std::string stall(const SocketView& socket) {
  if (socket.tx_stalled_ns >= kShownStallNs) return "tx " + short_time(socket.tx_stalled_ns);
  if (socket.rx_stalled_ns >= kShownStallNs) return "rx " + short_time(socket.rx_stalled_ns);
  return "-";
}

std::string remark(const SocketInfo& info) {
  if (info.state == SocketState::listening) return fmt::format("{} of {} waiting", info.pending, info.backlog);
  if (info.state == SocketState::failed && info.error != 0) return strerror(info.error);
  if (info.peer_ended) return "peer ended";
  if (info.peer_deaf) return "peer reads no more";
  if (!info.link_reason.empty()) return (info.state == SocketState::opening ? "" : "not ") + info.link_reason;
  return "";
}

std::string address(const Endpoint& endpoint) { return endpoint.family == 0 ? "-" : endpoint.host_port(); }

std::string socket_line(const SocketView& socket) {
  const SocketInfo& info = socket.info;
  const bool carries = info.ring_bytes != 0;
  const auto count = [&](std::uint64_t bytes) {
    return carries ? short_number(static_cast<double>(bytes)) : std::string("-");
  };
  std::string line = fmt::format(kLine, info.handle < 0 ? "-" : std::to_string(info.handle), to_string(info.state),
                                 to_string(info.link), address(info.local), address(info.peer), count(info.tx_bytes),
                                 count(info.rx_bytes), per_second(socket.tx_bytes_per_s),
                                 per_second(socket.rx_bytes_per_s), fill(info.tx_ring_fill, info.ring_bytes),
                                 fill(info.rx_ring_fill, info.ring_bytes), stall(socket),
                                 info.handle < 0 ? "-" : short_time(info.age_ns), remark(info));
  line.erase(line.find_last_not_of(" \n") + 1);
  return line + "\n";
}

std::string context_lines(const ContextView& context, std::uint64_t unix_ns) {
  const std::uint64_t age_ns = unix_ns - std::min(unix_ns, context.started_unix_ns);
  std::string text = fmt::format("\n{}  pid {}  context {}  up {}", context.program, context.pid, context.number,
                                 short_time(age_ns));
  if (context.stalled) {
    text += fmt::format("  STALLED: no answer for {}; is the process stopped?", short_time(context.silent_ns));
  } else if (context.steps_per_s && context.wakeups_per_s) {
    text += fmt::format("  {} steps/s  {} wakeups/s", short_number(*context.steps_per_s),
                        short_number(*context.wakeups_per_s));
  }
  text += "\n";
  for (const SocketView& socket : context.sockets) text += socket_line(socket);
  if (context.snapshot.records < context.snapshot.sockets) {
    text += fmt::format("  and {} sockets for which the page's folder has no room\n",
                        context.snapshot.sockets - context.snapshot.records);
  }
  return text;
}

}  // namespace

std::string short_number(double value) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", value, unit > 0 && value < 9.95 ? 1 : 0, kUnits[unit]);
}

std::string short_time(std::uint64_t ns) {
  const std::uint64_t s = ns / kSecondNs;
  if (s < 60) return fmt::format("{:.1f}s", std::floor(static_cast<double>(ns) / 1e8) / 10);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 48 * 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d", s / 86400);
}

std::string make_table(const Look& look, std::uint64_t unix_ns) {
  std::size_t sockets = 0;
  for (const ContextView& context : look.contexts) sockets += context.snapshot.sockets;
  std::string text = fmt::format("gpusock-top  {} context{}, {} socket{}", look.contexts.size(),
                                 look.contexts.size() == 1 ? "" : "s", sockets, sockets == 1 ? "" : "s");
  if (look.rubbish != 0) text += fmt::format("; {} pages that this version cannot read", look.rubbish);
  text += "\n";
  if (sockets != 0) {
    text += fmt::format(kLine, "SOCKET", "STATE", "LINK", "LOCAL", "PEER", "TX", "RX", "TX/s", "RX/s", "TXQ", "RXQ",
                        "STALLED", "AGE", "");
    text.erase(text.find_last_not_of(" \n") + 1);
    text += "\n";
  }
  for (const ContextView& context : look.contexts) text += context_lines(context, unix_ns);
  return text;
}

std::string cut(const std::string& text, std::size_t rows, std::size_t columns) {
  std::string result;
  std::size_t start = 0;
  for (std::size_t row = 0; row < rows && start < text.size(); ++row) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    result += text.substr(start, std::min(end - start, columns)) + "\n";
    start = end + 1;
  }
  return result;
}

}  // namespace gpusock::top
