#pragma once
/// @file The list of clocks: which version of the weights a worker may read. To add one, write a file like ssp.hpp, and
/// add its type and its text here. Servers, workers and the simulation of the tests call it by store::Clock.

#include "param_sync/store/clock/async.hpp"
#include "param_sync/store/clock/backup.hpp"
#include "param_sync/store/clock/bsp.hpp"
#include "param_sync/store/clock/coded.hpp"
#include "param_sync/store/clock/ssp.hpp"

#include "gpusock/error.hpp"
#include "gpusock/types.hpp"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace param_sync {

/// A clock, for the host. The first one is the default.
using AnyClock = std::variant<Bsp, Ssp, Async, Backup, Coded>;

/// True if a clock's sums may lack pushes (see Bsp::kDropsLate).
inline bool drops_late(const AnyClock& clock) {
  return std::visit([](const auto& is) { return is.kDropsLate; }, clock);
}

/// Says why so many ranks cannot have a clock; empty if they can.
inline std::string problem_of(const AnyClock& clock, int ranks) {
  const auto all = static_cast<std::uint64_t>(ranks);
  if (const Backup* const backup = std::get_if<Backup>(&clock); backup != nullptr && backup->backups >= all) {
    return "backup:" + std::to_string(backup->backups) + " of " + std::to_string(ranks) +
           " ranks leaves none to wait for: take a smaller number";
  }
  if (const Coded* const coded = std::get_if<Coded>(&clock); coded != nullptr && all % (coded->stragglers + 1) != 0) {
    return "coded:" + std::to_string(coded->stragglers) + " makes groups of " + std::to_string(coded->stragglers + 1) +
           " ranks, and " + std::to_string(ranks) + " is no multiple of that: take another number";
  }
  return "";
}

/// Returns a clock by its text: "bsp", "ssp:S" with S from 0 to 2^32 ("ssp:0" is bsp), "async", "backup:B",
/// "backup:B,MS" with a grace of up to 10^9 ms, or "coded:K" with numbers from 0 to 63 (with 0 both are bsp). Throws
/// gpusock::Error (EINVAL).
inline AnyClock clock_of(std::string_view text) {
  constexpr std::uint64_t kStalenessMax = std::uint64_t{1} << 32, kRanksMax = 64, kGraceMaxMs = 1'000'000'000;
  const auto number_of = [](std::string_view all, std::uint64_t most) -> std::optional<std::uint64_t> {
    std::uint64_t number = 0;
    const auto read = std::from_chars(all.data(), all.data() + all.size(), number);
    if (read.ec != std::errc() || read.ptr != all.data() + all.size() || number > most) return std::nullopt;
    return number;
  };
  std::optional<std::uint64_t> grace_ms = 0;
  std::string_view without_grace = text;
  if (const std::size_t comma = text.find(','); text.starts_with("backup:") && comma != text.npos) {
    grace_ms = number_of(text.substr(comma + 1), kGraceMaxMs);
    if (grace_ms) without_grace = text.substr(0, comma);  // else the whole text is none of them
  }
  const auto number_after = [&](std::string_view name, std::uint64_t most) {
    return without_grace.starts_with(name) ? number_of(without_grace.substr(name.size()), most) : std::nullopt;
  };
  if (text == "bsp") return Bsp();
  if (text == "async") return Async();
  const auto staleness = number_after("ssp:", kStalenessMax), backups = number_after("backup:", kRanksMax - 1),
             stragglers = number_after("coded:", kRanksMax - 1);
  if (staleness == 0 || backups == 0 || stragglers == 0) return Bsp();
  if (staleness) return Ssp{*staleness};
  if (backups) return Backup{*backups, 1'000'000 * *grace_ms};
  if (stragglers) return Coded{*stragglers};
  throw gpusock::Error(EINVAL,
                       "there is no clock \"" + std::string(text) +
                           "\": take bsp, ssp:S (reads miss at most S pushes of each worker), async, "
                           "backup:B (a sum lacks the B pushes that come last; backup:B,MS: if they come so many ms "
                           "after the others), or coded:K (the workers of a "
                           "group of K + 1 push the same, and one of them suffices)");
}

namespace store {

template <class Any>
class ChosenClock;

/// A clock that was chosen at run time, for hosts and kernels. (Kernels cannot call std::visit(). A server that was a
/// template of its clock made programs megabytes larger.) `Any` is AnyClock.
template <class... Clocks>
class ChosenClock<std::variant<Clocks...>> : Clocks... {
 public:
  /// The first clock.
  ChosenClock() = default;
  /// The host calls it.
  explicit ChosenClock(const std::variant<Clocks...>& clock) : index_(clock.index()) {
    std::visit([this](const auto& is) { static_cast<std::decay_t<decltype(is)>&>(*this) = is; }, clock);
  }

  /// See Bsp::kInRankOrder.
  GPUSOCK_FN bool is_in_rank_order() const {
    std::size_t i = 0;
    return ((i++ == index_ && Clocks::kInRankOrder) || ...);
  }
  /// See Bsp::kDropsLate.
  GPUSOCK_FN bool drops_late() const {
    std::size_t i = 0;
    return ((i++ == index_ && Clocks::kDropsLate) || ...);
  }
  /// See Bsp::suffices().
  GPUSOCK_FN bool suffices(std::uint64_t contained, bool own, std::uint64_t clock) const {
    std::size_t i = 0;
    return ((i++ == index_ && Clocks::suffices(contained, own, clock)) || ...);
  }
  /// See Backup::summed(). 0 with a clock that drops none.
  GPUSOCK_FN std::uint64_t summed(std::uint64_t come, int ranks) const {
    return of_dropping(std::uint64_t{0}, [&](const auto& clock) { return clock.summed(come, ranks); });
  }
  /// See Backup::scale(). 1 with a clock that drops none.
  GPUSOCK_FN float scale(std::uint64_t summed, int ranks) const {
    return of_dropping(1.0f, [&](const auto& clock) { return clock.scale(summed, ranks); });
  }
  /// See Backup::grace_ns. 0 with other clocks.
  GPUSOCK_FN std::uint64_t grace() const {
    return of_dropping(std::uint64_t{0}, [&](const auto& clock) {
      if constexpr (requires { clock.grace_ns; }) return clock.grace_ns;
      return std::uint64_t{0};
    });
  }
  /// True if a read must see more pushes of other workers when its own worker has made more.
  GPUSOCK_FN bool is_bounded() const { return !suffices(0, false, ~std::uint64_t{0}); }

 private:
  /// Returns call(clock) if the clock drops late pushes, and `otherwise` if it does not.
  template <class Value, class Call>
  GPUSOCK_FN Value of_dropping(Value otherwise, Call call) const {
    std::size_t i = 0;
    const auto take = [&]<class Clock>(const Clock& clock) {
      if constexpr (Clock::kDropsLate) otherwise = i == index_ ? call(clock) : otherwise;
      ++i;
    };
    (take(static_cast<const Clocks&>(*this)), ...);
    return otherwise;
  }

  std::size_t index_ = 0;
};

/// The clock of a store.
using Clock = ChosenClock<AnyClock>;

}  // namespace store
}  // namespace param_sync
