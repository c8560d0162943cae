#include "plan/sync.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>
#include <string>

namespace param_sync {

SyncPlan sync_of(std::string_view text) {
  constexpr std::string_view kEvery = "every:";
  if (text.empty()) return {};
  if (text.starts_with(kEvery)) {
    std::uint64_t steps = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + kEvery.size(), end, steps);
    if (read.ec == std::errc() && read.ptr == end && steps != 0) return {Bsp(), steps};
  } else {
    try {
      return {clock_of(text), 0};
    } catch (const gpusock::Error&) {
      // What is allowed here is more than clocks.
    }
  }
  throw gpusock::Error::with_cause(
      EINVAL, "'" + std::string(text) +
                  "' is none of bsp, ssp:S (weights miss at most S pushes of each node), async, and "
                  "every:X (nodes average their weights after X steps, from 1 on)");
}

}  // namespace param_sync
