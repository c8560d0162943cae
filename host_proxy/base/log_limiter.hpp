#pragma once
/// @file Limits how often one kind of message is logged, and counts equal messages.

#include "plain_types/clock.hpp"
#include "host_proxy/base/code_line.hpp"
#include "host_proxy/base/log.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// Messages are of one kind if one line of code logs them. In each second the first ten of a kind are written. A
/// message that equals the last one of its kind is only counted, and the count is written later. Not thread-safe.
class LogLimiter {
 public:
  static constexpr std::uint64_t kLinesPerWindow = 10;
  static constexpr std::uint64_t kWindowNs = 1'000'000'000;

  struct Line {
    LogLevel level;
    std::string text;
    bool operator==(const Line&) const = default;
  };
  using Lines = std::vector<Line>;

  /// The lines to write now, for a message that the program logs: none, or the message, maybe with counts of others.
  Lines admit(const CodeLine& kind, LogLevel level, const std::string& message, std::uint64_t now_ns) {
    State& state = states_[{kind.file_name(), kind.line()}];
    if (state.lines == 0 || state.is_over(now_ns)) {
      state.window_start_ns = now_ns;
      state.lines = 0;
    }
    const bool alike = message == state.last;
    if (state.lines != 0 && alike) {
      ++state.alike;
      return {};
    }
    if (state.lines == kLinesPerWindow) {
      ++state.dropped;
      return {};
    }
    ++state.lines;
    Lines lines;
    if (!alike && state.alike != 0) {
      lines.push_back({state.level, state.last + counted(std::exchange(state.alike, 0))});
    }
    lines.push_back({level, state.take_counts(message)});
    state.level = level;
    state.last = message;
    return lines;
  }

  /// The counts that are still to be written, of the kinds whose second is over.
  Lines overdue(std::uint64_t now_ns) {
    return take([now_ns](const State& state) { return state.is_over(now_ns); });
  }
  /// The counts that are still to be written, of all kinds.
  Lines rest() {
    return take([](const State&) { return true; });
  }
  /// Forgets all counts. For a forked child: its parent writes them.
  void forget() { states_.clear(); }

 private:
  struct State {
    std::uint64_t window_start_ns = 0;
    std::uint64_t lines = 0;
    std::uint64_t alike = 0;          ///< messages that equal `last` and were not written
    std::uint64_t dropped = 0;        ///< other messages that were not written
    LogLevel level = LogLevel::warn;  ///< of `last`
    std::string last;

    bool is_over(std::uint64_t now_ns) const { return now_ns >= detail::later_ns(window_start_ns, kWindowNs); }
    /// The message, with the counts of messages that were not written before it.
    std::string take_counts(const std::string& message) {
      std::string line = message;
      if (alike != 0) line += counted(std::exchange(alike, 0));
      if (dropped != 0) {
        line += " (and " + std::to_string(std::exchange(dropped, 0)) + " more like this, not logged)";
      }
      return line;
    }
  };

  static std::string counted(std::uint64_t alike) { return " (" + std::to_string(alike) + " more alike)"; }

  template <class Which>
  Lines take(Which which) {
    Lines lines;
    for (auto& [kind, state] : states_) {
      if ((state.alike != 0 || state.dropped != 0) && which(state))
        lines.push_back({state.level, state.take_counts(state.last)});
    }
    return lines;
  }

  std::map<std::pair<std::string_view, std::uint_least32_t>, State> states_;
};

}  // namespace gpusock::proxy
