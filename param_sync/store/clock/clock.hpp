#pragma once
/// @file The list of clocks: which version of the weights a worker may read. To add one, write a file like ssp.hpp, and
/// add its type and its text here. Servers are templates of it; the simulator calls the same code.

#include "param_sync/store/clock/async.hpp"
#include "param_sync/store/clock/bsp.hpp"
#include "param_sync/store/clock/ssp.hpp"

#include "gpusock/error.hpp"
#include "gpusock/types.hpp"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace param_sync {

/// A clock, for the host. The first one is the default.
using AnyClock = std::variant<Bsp, Ssp, Async>;

/// Returns a clock by its text: "bsp", "ssp:S" with S from 0 to 2^32 ("ssp:0" is bsp), or "async". Throws
/// gpusock::Error (EINVAL).
inline AnyClock clock_of(std::string_view text) {
  constexpr std::string_view kSsp = "ssp:";
  if (text == "bsp") return Bsp();
  if (text == "async") return Async();
  if (text.starts_with(kSsp)) {
    std::uint64_t staleness = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + kSsp.size(), end, staleness);
    if (read.ec == std::errc() && read.ptr == end && staleness <= std::uint64_t{1} << 32) {
      if (staleness == 0) return Bsp();
      return Ssp{staleness};
    }
  }
  throw gpusock::Error(EINVAL, "there is no clock \"" + std::string(text) +
                                   "\": take bsp, ssp:S (reads miss at most S pushes of each worker), or async");
}

namespace store {

template <class Any>
class ChosenClock;

/// A clock that was chosen at run time, for kernels that are no templates of it: std::visit() is for hosts. `Any` is
/// AnyClock.
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
  /// See Bsp::suffices().
  GPUSOCK_FN bool suffices(std::uint64_t contained, bool own, std::uint64_t clock) const {
    std::size_t i = 0;
    return ((i++ == index_ && Clocks::suffices(contained, own, clock)) || ...);
  }
  /// True if a read must see more pushes of other workers when its own worker has made more.
  GPUSOCK_FN bool is_bounded() const { return !suffices(0, false, ~std::uint64_t{0}); }

 private:
  std::size_t index_ = 0;
};

}  // namespace store
}  // namespace param_sync
