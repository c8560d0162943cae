#include "gpusock/tools/top/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::top {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
/// Bytes that have been in a ring for less time do not count as stalled.
constexpr std::uint64_t kShownStallNs = 500'000'000;
constexpr const char* kLine =
    "  {:>10}  {:<9} {:<5} {:<21} {:<21} {:>6} {:>6} {:>7} {:>7} {:>5} {:>5}  {:<8} {:>6}  {}\n";
/// The parts of a line of 80 columns.
constexpr const char* kNarrowStart = " {:>10} {:<6} {:<6} {:<21}";
constexpr const char* kNarrowEnd = " {:>5} {:>5} {:>4} {:>4} {:<8}";

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
  if (info.peer_read_shut_down) return "peer reads no more";
  if (!info.link_reason.empty()) return (info.state == SocketState::opening ? "" : "not ") + info.link_reason;
  return "";
}

std::string address(const Endpoint& endpoint) { return endpoint.family == 0 ? "-" : endpoint.host_port(); }

bool is_narrow(const TableOptions& options) { return options.columns != 0 && options.columns < kWideColumns; }

/// A count of bytes; "-" for a socket without rings.
std::string count_of(const SocketInfo& info, std::uint64_t bytes) {
  return info.ring_bytes != 0 ? short_number(static_cast<double>(bytes)) : std::string("-");
}

std::string handle_of(const SocketInfo& info) { return info.handle < 0 ? "-" : std::to_string(info.handle); }

/// Removes spaces from the line's end, and cuts the line to the number of columns.
std::string finish(std::string line, const TableOptions& options) {
  if (options.columns != 0 && line.size() > options.columns) line.resize(options.columns);
  line.erase(line.find_last_not_of(" \n") + 1);
  return line + "\n";
}

std::string wide_line(const SocketView& socket, const TableOptions& options) {
  const SocketInfo& info = socket.info;
  return finish(fmt::format(kLine, handle_of(info), to_string(info.state), to_string(info.link), address(info.local),
                            address(info.peer), count_of(info, info.tx_bytes), count_of(info, info.rx_bytes),
                            per_second(socket.tx_bytes_per_s), per_second(socket.rx_bytes_per_s),
                            fill(info.tx_ring_fill, info.ring_bytes), fill(info.rx_ring_fill, info.ring_bytes),
                            stall(socket), info.handle < 0 ? "-" : short_time(info.age_ns), remark(info)),
                options);
}

/// The state in at most six letters. It also says that the peer has ended, as a narrow line has no room for remarks.
const char* short_state(const SocketInfo& info) {
  switch (info.state) {
    case SocketState::opening:
      return "open";
    case SocketState::listening:
      return "listen";
    case SocketState::waiting:
      return "wait";
    case SocketState::closing:
      return "close";
    case SocketState::failed:
      return "failed";
    case SocketState::connected:
      break;
  }
  return info.peer_ended ? "ended" : info.peer_read_shut_down ? "rdshut" : "conn";
}

/// An address in at most kCharacters characters. Of a longer one it shows the end, which has the port.
std::string short_address(const Endpoint& endpoint) {
  constexpr std::size_t kCharacters = 21;
  const std::string text = address(endpoint);
  return text.size() <= kCharacters ? text : ".." + text.substr(text.size() - (kCharacters - 2));
}

std::string narrow_line(const SocketView& socket, const TableOptions& options) {
  const SocketInfo& info = socket.info;
  const bool peerless = info.state == SocketState::listening || info.peer.family == 0;
  const std::string start = fmt::format(kNarrowStart, handle_of(info), short_state(info), to_string(info.link),
                                        short_address(peerless ? info.local : info.peer));
  const bool carries = info.ring_bytes != 0 && info.state != SocketState::failed;
  if (!carries) return finish(start + ' ' + remark(info), options);
  return finish(start + fmt::format(kNarrowEnd, per_second(socket.tx_bytes_per_s), per_second(socket.rx_bytes_per_s),
                                    fill(info.tx_ring_fill, info.ring_bytes), fill(info.rx_ring_fill, info.ring_bytes),
                                    stall(socket)),
                options);
}

/// The caller that opened or accepted the socket; empty while the socket waits to be accepted.
std::string opener(const SocketInfo& info) {
  if (info.handle < 0 || info.state == SocketState::waiting) return "";
  return info.block < 0 ? "opened by a host thread" : fmt::format("opened by block {}", info.block);
}

/// Where the socket's rings lie; empty if it has none.
std::string places_of(const RingPlaces& places) {
  if (places.bytes == RingPlacement::automatic) return "";
  const std::pair<const char*, RingPlacement> words[] = {{"tx.committed", places.tx_committed},
                                                         {"tx.consumed", places.tx_consumed},
                                                         {"rx.committed", places.rx_committed},
                                                         {"rx.consumed", places.rx_consumed},
                                                         {"status", places.status}};
  std::string on_device;
  std::size_t count = 0;
  for (const auto& [name, place] : words) {
    if (place != RingPlacement::device) continue;
    on_device += (count++ == 0 ? "" : " ") + std::string(name);
  }
  const std::string rings = "rings in " + std::string(to_string(places.bytes)) + " memory, ";
  if (count == 0 || count == std::size(words))
    return rings + "words in " + (count == 0 ? "host" : "device") + " memory";
  return rings + "words on device: " + on_device;
}

/// The lines of --info: what the line above has no room for, and, as in `ss -i`, what the operating system knows of a
/// TCP connection.
std::string detail_lines(const SocketView& socket, const TableOptions& options) {
  const SocketInfo& info = socket.info;
  const std::string age = "age " + short_time(info.age_ns);
  std::string text;
  if (is_narrow(options) && info.state == SocketState::listening) {
    text += finish(fmt::format("{:12}{}", "", age), options);
  } else if (is_narrow(options)) {
    text += finish(fmt::format("{:12}from {}  tx {}  rx {}  {}  {}", "", address(info.local),
                               count_of(info, info.tx_bytes), count_of(info, info.rx_bytes), age, remark(info)),
                   options);
  }
  if (const std::string who = opener(info); !who.empty()) text += finish(fmt::format("{:12}{}", "", who), options);
  if (const std::string where = places_of(info.places); !where.empty()) {
    text += finish(fmt::format("{:12}{}", "", where), options);
  }
  const proxy::TcpInfo& tcp = socket.tcp;
  if (tcp.known == 0) return text;
  return text + finish(fmt::format("{:12}rtt {:.3f}+-{:.3f} ms  retrans {}  cwnd {}x{} B  unacked {}  rto {} ms", "",
                                   tcp.round_trip_us * 1e-3, tcp.round_trip_var_us * 1e-3, tcp.retransmits,
                                   tcp.congestion_window, tcp.segment_bytes, tcp.unacknowledged,
                                   tcp.retransmit_timeout_us / 1000),
                       options);
}

std::string socket_lines(const SocketView& socket, const TableOptions& options) {
  const std::string line = is_narrow(options) ? narrow_line(socket, options) : wide_line(socket, options);
  return options.details ? line + detail_lines(socket, options) : line;
}

std::string context_line(const ContextView& context, std::uint64_t unix_ns, const TableOptions& options) {
  const std::uint64_t age_ns = unix_ns - std::min(unix_ns, context.started_unix_ns);
  std::string text = fmt::format("{}  pid {}  context {}  up {}", context.program, context.pid, context.number,
                                 short_time(age_ns));
  if (context.stalled) {
    text += fmt::format("  STALLED: no answer for {}; is the process stopped?", short_time(context.silent_ns));
  } else if (context.steps_per_s && context.wakeups_per_s) {
    text += fmt::format("  {} steps/s  {} wakeups/s", short_number(*context.steps_per_s),
                        short_number(*context.wakeups_per_s));
  }
  return "\n" + finish(text, options);
}

/// True if `a` comes before `b`.
bool comes_before(const SocketView& a, const SocketView& b, Sort sort) {
  const auto key = [&](const SocketView& socket) -> double {
    const SocketInfo& info = socket.info;
    switch (sort) {
      case Sort::rate:
        return socket.tx_bytes_per_s.value_or(0) + socket.rx_bytes_per_s.value_or(0);
      case Sort::bytes:
        return static_cast<double>(info.tx_bytes) + static_cast<double>(info.rx_bytes);
      case Sort::fill:
        return static_cast<double>(std::max(info.tx_ring_fill, info.rx_ring_fill)) /
               static_cast<double>(std::max<std::uint64_t>(info.ring_bytes, 1));
      case Sort::stalled:
        return static_cast<double>(std::max(socket.tx_stalled_ns, socket.rx_stalled_ns));
      case Sort::age:
        return static_cast<double>(info.age_ns);
      case Sort::retransmits:
        return socket.tcp.retransmits;
      default:
        return 0;
    }
  };
  if (sort == Sort::socket) return a.info.handle < b.info.handle;
  if (sort == Sort::peer) return address(a.info.peer) < address(b.info.peer);
  return key(a) > key(b);
}

/// One context's part of the table, in pieces, because there may not be room for all of them.
struct Part {
  std::string head;
  std::vector<std::string> sockets;
  std::string end;

  /// The part with at most `sockets_max` sockets, and a line about the others.
  std::string text(std::size_t sockets_max) const {
    std::string text = head;
    for (std::size_t i = 0; i < std::min(sockets_max, sockets.size()); ++i) text += sockets[i];
    if (sockets_max < sockets.size()) {
      const std::size_t more = sockets.size() - sockets_max;
      text += fmt::format("            and {} more socket{}\n", more, more == 1 ? "" : "s");
    }
    return text + end;
  }
};

Part make_part(const ContextView& context, std::uint64_t unix_ns, const TableOptions& options) {
  Part part;
  part.head = context_line(context, unix_ns, options);
  std::vector<const SocketView*> sorted;
  for (const SocketView& socket : context.sockets) sorted.push_back(&socket);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const SocketView* a, const SocketView* b) { return comes_before(*a, *b, options.sort); });
  for (const SocketView* socket : sorted) part.sockets.push_back(socket_lines(*socket, options));
  if (context.snapshot.records < context.snapshot.sockets) {
    part.end = finish(fmt::format("  and {} sockets for which the page's folder has no room",
                                  context.snapshot.sockets - context.snapshot.records),
                      options);
  }
  return part;
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The largest number of sockets of each context for which there is room in `rows`.
std::size_t sockets_that_fit(const std::vector<Part>& parts, std::size_t rows) {
  std::size_t most = 0;
  for (const Part& part : parts) most = std::max(most, part.sockets.size());
  const auto fits = [&](std::size_t sockets) {
    std::size_t lines = 0;
    for (const Part& part : parts) lines += lines_in(part.text(sockets));
    return lines <= rows;
  };
  std::size_t low = 0;  // the largest number that fits, or 0
  for (std::size_t high = most; low < high;) {
    const std::size_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Joins the parts. Those at the end for which there is no room are counted.
std::string join(const std::vector<Part>& parts, std::size_t sockets_max, std::size_t rows) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string next = parts[i].text(sockets_max);
    const std::size_t kept = i + 1 < parts.size() ? 1 : 0;  // for the line about the others
    if (rows != 0 && lines_in(text) + lines_in(next) + kept > rows) {
      return text + fmt::format("and {} more context{}\n", parts.size() - i, parts.size() - i == 1 ? "" : "s");
    }
    text += next;
  }
  return text;
}

std::string titles(const TableOptions& options) {
  if (!is_narrow(options)) {
    return finish(fmt::format(kLine, "SOCKET", "STATE", "LINK", "LOCAL", "PEER", "TX", "RX", "TX/s", "RX/s", "TXQ",
                              "RXQ", "STALLED", "AGE", ""),
                  options);
  }
  return finish(fmt::format(kNarrowStart, "SOCKET", "STATE", "LINK", "ADDRESS") +
                    fmt::format(kNarrowEnd, "TX/s", "RX/s", "TXQ", "RXQ", "STALLED"),
                options);
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

std::string make_table(const Look& look, std::uint64_t unix_ns, const TableOptions& options) {
  std::size_t sockets = 0;
  for (const ContextView& context : look.contexts) sockets += context.snapshot.sockets;
  std::string text = fmt::format("gpusock-top  {} context{}, {} socket{}", look.contexts.size(),
                                 look.contexts.size() == 1 ? "" : "s", sockets, sockets == 1 ? "" : "s");
  if (look.others != 0) text += fmt::format("; {} of other users, not shown", look.others);
  if (look.rubbish != 0) text += fmt::format("; {} pages that this version cannot read", look.rubbish);
  text = finish(text, options);
  if (sockets != 0) text += titles(options);
  std::vector<Part> parts;
  for (const ContextView& context : look.contexts) parts.push_back(make_part(context, unix_ns, options));
  const std::size_t rows = options.rows == 0 ? 0 : std::max(options.rows, lines_in(text) + 1) - lines_in(text);
  std::size_t sockets_max = options.limit == 0 ? ~std::size_t{0} : options.limit;
  if (rows != 0) sockets_max = std::min(sockets_max, sockets_that_fit(parts, rows));
  return text + join(parts, sockets_max, rows);
}

namespace {

/// Where the lines below the titles begin. Each context begins with an empty line.
std::size_t end_of_titles(const std::string& table) {
  const std::size_t at = table.find("\n\n");
  return at == std::string::npos ? table.size() : at + 1;
}

}  // namespace

std::size_t lines_below_titles(const std::string& table) { return lines_in(table.substr(end_of_titles(table))); }

std::size_t room_in_window(const std::string& table, std::size_t rows) {
  const std::size_t above = lines_in(table.substr(0, end_of_titles(table))) + 1;
  return rows > above ? rows - above : 0;
}

std::string make_window(const std::string& table, std::size_t first, std::size_t rows) {
  const std::size_t titles = end_of_titles(table);
  const std::size_t lines = lines_below_titles(table);
  const std::size_t shown = std::min(room_in_window(table, rows), lines - std::min(first, lines));
  std::string head, body;
  bool begins = false;  // the line at `at` is a context's own
  std::size_t at = titles;
  for (std::size_t i = 0; i < first + shown; ++i) {
    const std::size_t next = table.find('\n', at) + 1;
    const std::string line = table.substr(at, next - at);
    if (begins && i <= first) head = line;
    begins = line == "\n";
    if (i >= first) body += line;
    at = next;
  }
  std::string text = table.substr(0, titles);
  text.insert(text.find('\n'), fmt::format("  (lines {} to {} of {})", first + 1, first + shown, lines));
  return text + (head.empty() ? "\n" : head) + body;
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
