#pragma once
/// @file Bounds how often one kind of message is logged.

#include "gpusock/detail/clock.hpp"
#include "host_proxy/base/code_line.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace gpusock::proxy {

/// Messages are of one kind if one line of code logs them. Not thread-safe.
class LogLimiter {
 public:
  static constexpr std::uint64_t kLinesPerWindow = 10;
  static constexpr std::uint64_t kWindowNs = 1'000'000'000;

  /// If a message may be logged now: how many of its kind were dropped since the last one. Else nothing.
  std::optional<std::uint64_t> admit(const CodeLine& kind, std::uint64_t now_ns) {
    State& state = states_[{kind.file_name(), kind.line()}];
    if (state.lines == 0 || now_ns >= later_ns(state.window_start_ns, kWindowNs)) {
      state.window_start_ns = now_ns;
      state.lines = 0;
    }
    if (state.lines == kLinesPerWindow) {
      ++state.suppressed;
      return std::nullopt;
    }
    ++state.lines;
    return std::exchange(state.suppressed, 0);
  }

 private:
  struct State {
    std::uint64_t window_start_ns = 0;
    std::uint64_t lines = 0;
    std::uint64_t suppressed = 0;
  };
  std::map<std::pair<std::string_view, std::uint_least32_t>, State> states_;
};

}  // namespace gpusock::proxy
