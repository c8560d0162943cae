#include "param_sync/store.hpp"

#include <fmt/format.h>

namespace param_sync {

std::string to_json_lines(int rank, std::span<const StoreEvent> history) {
  std::string lines;
  for (const StoreEvent& event : history) {
    lines += fmt::format(R"({{"worker": {}, "op": "{}", "clock": {}, "keys": [{}, {}])", rank,
                         event.is_push ? "push" : "read", event.clock, event.begin, event.end);
    if (!event.is_push) lines += fmt::format(R"(, "seen": [{}])", fmt::join(event.seen, ", "));
    if (event.is_cached) lines += R"(, "cached": true)";
    lines += "}\n";
  }
  return lines;
}

}  // namespace param_sync
