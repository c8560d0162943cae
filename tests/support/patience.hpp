#pragma once
// How long a test waits for what must happen: no wait is unbounded, and no result depends on the machine's speed.
#include <gpusock/types.hpp>
#include "ringbuf/annotations.hpp"

namespace gpusock {

inline constexpr std::uint64_t kPatienceNs = 20'000'000'000;

GPUSOCK_FN inline Deadline patience() { return Deadline::after_ns(kPatienceNs); }

}  // namespace gpusock
